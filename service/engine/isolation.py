"""Running many together, so that one failure does not affect the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

logger = logging.getLogger(__name__)

ENDINGS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)  # what is to end a loop, and is no failure of one

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """What one item has in place of a result."""

    error: Exception


def isolated(run: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]) -> list[Result | Failure]:
    """Return a result for each item: run all together and, when that fails, each half, until the culprit is alone.

    One culprit among n costs about 2·log₂ n runs more. `run` must be repeatable: a run that failed half-way and its
    repetition leave the same behind.
    """
    try:
        results: list[Result | Failure] = [*run(items)]
        assert len(results) == len(items), "bug: a run returned too few results"
        return results
    except BaseException as error:  # a library's may be none of `Exception`
        if len(items) == 1:
            logger.exception("the graphs failed on one sequence or input; it ends, and the others go on")
            return [Failure(as_exception(error))]
    middle = len(items) // 2
    return [*isolated(run, items[:middle]), *isolated(run, items[middle:])]


def as_exception(error: BaseException) -> Exception:
    """Return an error that ends no thread and no loop, as a panic of a library written in Rust would."""
    if isinstance(error, Exception):
        return error
    failed = RuntimeError(repr(error))
    failed.__cause__ = error
    return failed
