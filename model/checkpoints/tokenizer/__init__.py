"""A `tokenizer.json` for every checkpoint: its own where it has one, else made of the files it has instead."""

from model.checkpoints.tokenizer.find import fitting, make_tokenizer, read_tokenizer, without_ends, write_tokenizer

__all__ = ["fitting", "make_tokenizer", "read_tokenizer", "without_ends", "write_tokenizer"]
