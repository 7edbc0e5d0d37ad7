"""Hugging Face checkpoints in: a family is `to_config` and a table of names, and one strict function reads them all."""
