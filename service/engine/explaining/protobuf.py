"""Protobuf's wire format, as far as ONNX graphs need it: bytes are read in place, so weights are not copied.

A message is a row of fields: a number with a wire type, then a value. Two messages of a kind, one behind the other, are
one message: lists are joined, and so are the lists of the messages within. That is how a graph gets nodes and outputs
by bytes that are put behind it (https://protobuf.dev/programming-guides/encoding/, "Last One Wins").
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED = {FIXED64: 8, FIXED32: 4}

Value = int | memoryview


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the number and value of each field, in order: whole numbers as they are, and all else as bytes."""
    return ((number, value) for number, _, value in placed_fields(message))


def placed_fields(message: memoryview) -> Iterator[tuple[int, int, Value]]:
    """Yield the same, with where in the message each value begins."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == VARINT:
            start = place
            value, place = _varint(message, start)
            yield key >> 3, start, value
            continue
        length = FIXED.get(kind)
        if length is None:
            length, place = _varint(message, place)
        yield key >> 3, place, message[place : place + length]
        place += length


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return a whole number of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def signed(value: Value) -> int:
    """Return a whole number that may be negative: those are written as if they were unsigned, of 64 bits."""
    assert isinstance(value, int)
    return value - 2**64 if value >= 2**63 else value


def varint(value: int) -> bytes:
    """Write a whole number that is not negative."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def number_field(number: int, value: int) -> bytes:
    """Write a field with a whole number."""
    return varint(number << 3 | VARINT) + varint(value % 2**64)


def same_field(number: int, value: Value) -> bytes:
    """Write a field that was read, which is none of the kinds with a fixed size."""
    return number_field(number, value) if isinstance(value, int) else bytes_field(number, bytes(value))


def bytes_field(number: int, value: bytes | str) -> bytes:
    """Write a field with a text, bytes or a message."""
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(content)) + content
