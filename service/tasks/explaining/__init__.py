"""Explanations of a model's answers: `/explain`, and the alignment of a translation."""
