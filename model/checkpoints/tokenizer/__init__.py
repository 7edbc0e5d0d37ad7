"""A `tokenizer.json` for every checkpoint: its own where it has one, else made of the files it has instead."""

from model.checkpoints.tokenizer.find import fitting, make_tokenizer, read_tokenizer, write_tokenizer
from model.checkpoints.tokenizer.templates import of_one_type, without_ends, without_last_pad

__all__ = [
    "fitting",
    "make_tokenizer",
    "of_one_type",
    "read_tokenizer",
    "without_ends",
    "without_last_pad",
    "write_tokenizer",
]
