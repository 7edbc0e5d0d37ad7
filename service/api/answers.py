"""Answers as JSON, piece by piece: a serializer does not let the event loop run meanwhile, and answers may be large."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any

import pydantic_core
from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response

from service.api.protocols.nulls import WithNulls
from service.turns import Turn

FEW = 512  # numbers or tokens of a list, which take about a millisecond


async def json_answer(answer: BaseModel | dict[str, Any] | Iterable[Any]) -> Response:
    """Return the JSON of an answer, or of a list of them, without the fields of models that are None.

    The items of a list may be made while it is written.
    """
    return Response(b"".join([piece async for piece in json_pieces(answer)]), media_type="application/json")


async def json_pieces(answer: BaseModel | dict[str, Any] | Iterable[Any]) -> AsyncIterator[bytes]:
    """Yield the JSON of an answer as `json_answer` has it, and let others have their turn in between."""
    turn = Turn()
    for piece in _pieces(answer):
        yield piece
        await turn.give()


def _pieces(answer: BaseModel | dict[str, Any] | Iterable[Any]) -> Iterator[bytes]:
    match answer:
        case BaseModel():
            return _model(answer)
        case dict():
            return _json(answer)
        case _:
            return _list(answer, _item)


def _model(answer: BaseModel) -> Iterator[bytes]:
    """Yield an answer field by field, its lists item by item."""
    separator = b"{"
    for name in type(answer).model_fields:
        value = getattr(answer, name)
        if value is not None or (isinstance(answer, WithNulls) and answer.is_null(name)):
            yield separator + pydantic_core.to_json(name) + b":"
            yield from _list(value, _item) if isinstance(value, list) and not _is_flat(value) else _item(value)
            separator = b","
    yield b"}"


def _item(value: Any) -> Iterator[bytes]:
    if isinstance(value, BaseModel) and is_long(value):
        yield from _model(value)
        return
    if not isinstance(value, list) or not is_long(value):
        yield from _json(value)
        return
    if isinstance(value[0], list | BaseModel):
        yield from _list(value, _item)
        return
    slices = [value[start : start + FEW] for start in range(0, len(value), FEW)]
    yield from _list(slices, lambda few: iter([_json_of(few)[1:-1]]))


def _is_flat(values: list[Any]) -> bool:
    """Whether a list is of numbers, or of so many texts that each of them is short."""
    return isinstance(next(iter(values), None), (int, float) if len(values) <= FEW else (int, float, str))


def is_long(value: Any) -> bool:
    """Whether a value is a long list, or a model that has one in it, or a list of models of which one has."""
    if isinstance(value, BaseModel):
        return any(map(is_long, value.__dict__.values()))
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return len(value) > FEW or any(map(is_long, value))
    return _length(value) > FEW


def _length(value: Any) -> int:
    """Return how many numbers or tokens a list has, also of lists that are alike."""
    if not isinstance(value, list) or not value:
        return 0
    return len(value) * max(1, _length(value[0]))


def _list(values: Iterable[Any], write: Any) -> Iterator[bytes]:
    yield b"["
    for place, value in enumerate(values):
        if place:
            yield b","
        yield from write(value)
    yield b"]"


def _json(value: Any) -> Iterator[bytes]:
    yield _json_of(value)


def _json_of(value: Any) -> bytes:
    """Return the JSON of a value; what is no number in JSON is null, in lists as in models."""
    sample = value[0] if isinstance(value, list) and value else value
    if is_dataclass(sample):  # of which `to_json` would write what is None
        kind: Any = type(sample)
        one, several = _adapters(kind)
        return (one if sample is value else several).dump_json(value, exclude_none=True)
    return pydantic_core.to_json(value, exclude_none=True, inf_nan_mode="null")


@cache
def _adapters(kind: Any) -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    """Return what writes one of a kind of dataclass, and lists of them."""
    return TypeAdapter(kind), TypeAdapter(list[kind])
