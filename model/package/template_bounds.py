"""What a template may make, and for how long: bounds of a rendering, which its operations ask before they make much.

That is no wall: a template is code of its model's author, who can still take memory and time by what is not asked for
here, as lists of lists of themselves.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple

MAX_FACTOR, MAX_PRODUCT = 100_000, 1_000_000  # of a template's multiplications
# What takes a number of characters, or of pieces, and makes as many; of all other calls numbers are only passed on.
PADDING_METHODS = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})
COUNTING_FILTERS = frozenset({"batch", "center", "indent", "slice", "tojson"})
# What stands in a form's places: widths of very many characters, or widths that are given.
WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(\d{6,}|\*)")
WIDE_BRACES = re.compile(r"\{[^{}]*(\d{6,}|\{)")


class TooMuch(Exception):
    """Rendering took too long, or made too long a text."""


class TooLongText(TooMuch):
    """Rendering made a longer text than it may."""


class _Bounds(NamedTuple):
    """Of a rendering: the time of this thread's processor at which it ends, and how long any text of it may be."""

    deadline: float
    characters: int


_bounds: ContextVar[_Bounds] = ContextVar("bounds")


@contextmanager
def bounds(seconds: float, characters: int) -> Iterator[None]:
    """Bound what is rendered meanwhile; `seconds` are those of this thread's processor."""
    token = _bounds.set(_Bounds(time.thread_time() + seconds, characters))
    try:
        yield
    finally:
        _bounds.reset(token)


def look_at_the_clock() -> None:
    """Raise `TooMuch` where the time is over."""
    if time.thread_time() > _bounds.get().deadline:
        raise TooMuch("it took too long")


def bounded(value: Any) -> Any:
    """Return what an operation has made, unless it is longer than the whole text may be."""
    if isinstance(value, str | bytes | list | tuple | dict | set):  # not what is only counted, as a range
        check_length(len(value))
    return value


def check_length(length: int) -> None:
    """Raise `TooMuch` for what is longer than the whole text may be."""
    if length > (most := _bounds.get().characters):
        raise TooMuch(f"a value of it has more than {most} characters or parts")


def check_text_method(name: str, text: str, args: Sequence[Any]) -> None:
    """Refuse to fill up, replace or join to a text that would be too long, before it is made."""
    if name in PADDING_METHODS:
        _check_numbers(args)
    elif name in {"format", "format_map"}:
        check_form(WIDE_BRACES, text)
    elif name == "replace" and len(args) > 1 and all(isinstance(each, str) for each in args[:2]):
        check_length(len(text) + text.count(args[0]) * len(args[1]))
    elif name == "join" and args and isinstance(args[0], list | tuple):
        check_length(len(text) * len(args[0]) + sum(len(part) for part in args[0] if isinstance(part, str)))


def check_form(wide: re.Pattern[str], form: str) -> None:
    """Raise `TooMuch` for a form whose places are too wide, or as wide as is given."""
    if wide.search(form):
        raise TooMuch("it would fill up a text too far")


def _check_numbers(values: Sequence[Any]) -> None:
    if any(isinstance(value, int | float) and abs(value) > MAX_FACTOR for value in values):
        raise TooMuch("it would make too large a value")


def bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that makes nothing too long; Jinja's mark that it wants the context first stays on it."""
    is_given_more = hasattr(function, "jinja_pass_arg")

    @wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        value, *given = args[is_given_more:]
        if name in COUNTING_FILTERS:
            _check_numbers([*given, *kwargs.values()])
        elif name == "replace" and isinstance(value, str):
            parts = dict(zip(("old", "new"), given, strict=False)) | kwargs
            check_text_method(name, value, [parts.get("old"), parts.get("new")])
        elif name == "format" and isinstance(value, str):
            check_form(WIDE_PERCENT, value)
        elif name == "join":
            between = given[0] if given else kwargs.get("d", "")
            check_text_method(name, between if isinstance(between, str) else "", [value])
        return bounded(function(*args, **kwargs))

    return made
