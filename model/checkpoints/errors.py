"""What can be wrong with a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.wording import first_line


class CheckpointError(Exception):
    """A checkpoint cannot be read, or is of a kind that is not supported; the message says which and why."""


@contextmanager
def broken_values(folder: Path) -> Iterator[None]:
    """Raise `CheckpointError` for what a value that nobody expects makes others raise; the cause is kept.

    Files of checkpoints are made by many programs, and a type is not checked wherever it is read. `tokenizers` panics
    at some broken files, and raises nothing more special than `Exception` at others.
    """
    try:
        yield
    except (CheckpointError, AssertionError, ImportError, OSError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        cause = first_line(error)
        if isinstance(error, MemoryError) or "memory" in cause:  # of which torch has no kind of its own
            raise CheckpointError(
                f"{folder}: there is not enough memory for a model of the sizes it states: {cause}"
            ) from error
        raise CheckpointError(
            f"{folder}: one of its files has a value that cannot be used ({type(error).__name__}: {cause}); if another "
            "program reads this checkpoint, tell us of it"
        ) from error
