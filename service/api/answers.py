"""Answers as JSON, piece by piece: a serializer does not let the event loop run meanwhile, and answers may be large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pydantic_core
from starlette.responses import Response

from service import schemas
from service.turns import Turn

FEW = 512  # numbers or tokens of a list, which take about a millisecond


async def json_answer(answer: schemas.Response) -> Response:
    """Return an answer's JSON, without the fields that are None."""
    pieces: list[bytes] = []
    turn = Turn()
    for piece in _model(answer):
        pieces.append(piece)
        await turn.give()
    return Response(b"".join(pieces), media_type="application/json")


def _model(answer: schemas.Response) -> Iterator[bytes]:
    """Yield an answer field by field, its lists item by item."""
    separator = b"{"
    for name in type(answer).model_fields:
        value = getattr(answer, name)
        if value is not None:
            yield separator + pydantic_core.to_json(name) + b":"
            yield from _list(value, _item) if isinstance(value, list) else _json(value)
            separator = b","
    yield b"}"


def _item(value: Any) -> Iterator[bytes]:
    if not isinstance(value, list) or len(value) <= FEW:
        yield from _json(value)
        return
    slices = [value[start : start + FEW] for start in range(0, len(value), FEW)]
    yield from _list(slices, lambda few: iter([pydantic_core.to_json(few, exclude_none=True)[1:-1]]))


def _list(values: list[Any], write: Any) -> Iterator[bytes]:
    yield b"["
    for place, value in enumerate(values):
        if place:
            yield b","
        yield from write(value)
    yield b"]"


def _json(value: Any) -> Iterator[bytes]:
    yield pydantic_core.to_json(value, exclude_none=True)
