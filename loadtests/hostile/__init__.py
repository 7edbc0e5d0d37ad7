"""Polite users beside hostile clients: `python -m loadtests.hostile` shows that no request hurts another."""
