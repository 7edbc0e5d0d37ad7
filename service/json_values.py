"""How much JSON may hold, seen before it is parsed: no parser lets the event loop run meanwhile."""

from __future__ import annotations

import json

import numpy as np

from service.errors import NotJson, TooLarge

MAX_VALUES = 65_536  # of one body: parsed in about ten milliseconds
MAX_DEPTH = 200  # of lists and objects in one another: what is written of them in Python calls itself for each
SPACE = b" \t\r\n\xef\xbb\xbf"  # the last three mark UTF-8
SPACES = 1024  # that may come first; behind more of them all is counted
BEGINNINGS = frozenset(b'[{"-0123456789tfnNI')  # of all that parsers take for JSON


def check_values(body: bytes, name: str = "the body") -> None:
    """Refuse a body, or a text in one, of more values than can be parsed quickly, or of deeper ones.

    `name` is what a message calls it. Raises `TooLarge`, `NotJson`.
    """
    encoding = json.detect_encoding(body)
    if not encoding.startswith("utf-8") and _is_in(encoding, body):
        # A parser of JSON would read what was not counted here.
        raise NotJson(f"{name} is in {encoding}; send JSON in UTF-8")
    if not may_be_json(body):
        return  # a picture, or a form
    values, openers = body.count(b","), body.count(b"[") + body.count(b"{")
    if values < MAX_VALUES and openers <= MAX_DEPTH:
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # so that every quote left begins or ends a string
    if plain.count(b'"') > 4 * MAX_VALUES:  # a value is two strings at most: itself and its key
        raise _too_many_values(name)
    outside = b"".join(plain.split(b'"')[::2])
    if max(outside.count(b","), outside.count(b"[") + outside.count(b"{")) >= MAX_VALUES:
        raise _too_many_values(name)
    if _depth(outside) > MAX_DEPTH:
        raise TooLarge(f"{name} has more than {MAX_DEPTH} lists and objects in one another", "body")


def may_be_json(body: bytes) -> bool:
    """Tell whether a body begins as JSON does."""
    return bool(BEGINNINGS.intersection(body[:SPACES].lstrip(SPACE)[:1] or b"["))


def _is_in(encoding: str, body: bytes) -> bool:
    """Whether a body is a text in an encoding, as a parser of JSON reads it, rather than an image with some zeros."""
    try:
        body.decode(encoding, "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _too_many_values(name: str) -> TooLarge:
    return TooLarge(f"{name} has more than {MAX_VALUES} values; send several requests", "body")


def _depth(outside: bytes) -> int:
    """Return how many lists and objects are open at the most, in what stands outside of strings."""
    steps = np.zeros(256, np.int8)
    steps[list(b"[{")], steps[list(b"]}")] = 1, -1
    return int(np.cumsum(steps[np.frombuffer(outside, np.uint8)], dtype=np.int32).max(initial=0))
