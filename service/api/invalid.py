"""What is wrong with a body, in a sentence that names the field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from service.api.shared_bodies import place_of
from service.errors import NotJson, ServiceError, WrongForm
from service.schemas.request import SLIP

Kind = TypeVar("Kind", bound=BaseModel)
Place = tuple[int | str, ...]

MAX_SHOWN = 300  # characters of a message, or of a part of a place
_FIELD = re.compile(r"[a-z_][A-Za-z0-9_]{0,63}")  # in the place of an error; what else is there are types, by pydantic
_TYPES = frozenset({"bool", "bytes", "dict", "float", "int", "list", "str"})  # which look like fields


def first_problem(problems: Sequence[Any]) -> ServiceError:
    """Return the error that names the first wrong field; one of several kinds lists what each of them asks for."""
    first = problems[0]
    if first["type"] == "json_invalid":
        return NotJson(f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if first["type"] == SLIP:
        return WrongForm(first["msg"], first["ctx"]["name"])
    places = [place_of(problem["loc"]) for problem in problems]
    if len(places[0]) < 2:
        return WrongForm("the body must be a JSON object, sent as Content-Type: application/json", "body")
    kinds = [problem["type"] for problem in problems]
    fields = [
        _field(place[1:], is_unknown=kind == "extra_forbidden") for place, kind in zip(places, kinds, strict=True)
    ]
    # Of a value that may be of several kinds, the one that it was read as furthest is meant.
    place = max((field for field in fields if field[: len(fields[0])] == fields[0]), key=_how_far)
    told = [problem["msg"] for problem, field in zip(problems, fields, strict=True) if field[: len(place)] == place]
    path = ".".join(_short(str(part)) for part in place)
    return WrongForm(f"{path}: {', or: '.join(map(_short, dict.fromkeys(told)))}", str(place[0]))


def _field(place: Place, *, is_unknown: bool) -> Place:
    """Return the place of the field that is wrong, as (messages, 0, role).

    Of a field of several kinds pydantic tells what is wrong with each, and the kind behind the field. What is no field
    of ours, and so unknown, is one in its place.
    """
    known = place[:-1] if is_unknown else place
    fields = tuple(filter(_is_field, known))
    return (*fields, *place[len(known) :]) or place[:1]


def _how_far(place: Place) -> tuple[list[int], int]:
    """Return what is greater of a place that is further behind in the lists around it, or else deeper."""
    return [part for part in place if isinstance(part, int)], len(place)


def _is_field(part: int | str) -> bool:
    return isinstance(part, int) or (part not in _TYPES and _FIELD.fullmatch(part) is not None)


def _short(text: str) -> str:
    """Return a text in which may be what the client has sent."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN // 2]} … {text[-MAX_SHOWN // 2 :]}"


def native(kind: type[Kind], /, **values: Any) -> Kind:
    """Return the request that a protocol's body means; raises `WrongForm` for values that it may not have."""
    try:
        return kind(**values)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise first_problem([{**problem, "loc": ("body", *problem["loc"])} for problem in problems]) from None


@contextmanager
def naming(**fields: str) -> Iterator[None]:
    """Name fields in errors as a protocol does: those of the native request, and what the client has sent for them.

    The first word is the client's field, as in `alternatives + 1`, whose value ours is, or in `text.format`.
    """
    try:
        yield
    except ServiceError as error:
        message, param = error.message, error.param
        if param in fields:
            message = message.replace(param, fields[param], 1)
            param = re.split(r"[ .]", fields[param])[0]
        for ours, theirs in fields.items():  # others that it begins with, or tells the value of
            message = re.sub(rf"^{ours}\b|\b{ours}(?= is ')", theirs, message)
        error.args = (message, param, *error.args[2:])
        raise
