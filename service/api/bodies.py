"""What a body may hold, seen before it is parsed: no parser of JSON lets the event loop run meanwhile."""

from __future__ import annotations

from service.errors import TooLarge

MAX_VALUES = 65_536  # of one body: parsed in about ten milliseconds


def check_values(body: bytes) -> None:
    """Refuse a body of more values than can be parsed quickly; raises `TooLarge`."""
    if body.count(b",") >= MAX_VALUES and _has_too_many(body):
        raise TooLarge(f"the body has more than {MAX_VALUES} values; send several requests", "body")


def _has_too_many(body: bytes) -> bool:
    """Whether there are too many commas outside of strings, which is where JSON separates values."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # so that every quote left begins or ends a string
    if plain.count(b'"') > 4 * MAX_VALUES:  # a value is two strings at most: itself and its key
        return True
    return sum(between.count(b",") for between in plain.split(b'"')[::2]) >= MAX_VALUES
