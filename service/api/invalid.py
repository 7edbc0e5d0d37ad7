"""What is wrong with a body, in a sentence that names the field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from service.api.shared_bodies import place_of
from service.errors import NotJson, ServiceError, WrongForm
from service.schemas.request import SLIP

Kind = TypeVar("Kind", bound=BaseModel)
Place = tuple[int | str, ...]

MOST_SHOWN = 300  # characters of a message, in which may be what the client has sent
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
    found = [(problem["msg"], place[1:]) for problem, place in zip(problems, places, strict=True)]
    alike = [(message, place) for message, place in found if place[0] == found[0][1][0]]
    path = _path_of([place for _, place in alike])
    asked = dict.fromkeys(message for message, place in alike if _fields_of(place)[: len(path)] == path)
    param = str(found[0][1][0])
    return WrongForm(f"{'.'.join(path)}: {', or: '.join(asked)}"[:MOST_SHOWN], param)


def _path_of(places: Sequence[Place]) -> list[str]:
    """Return the way to the field that is wrong, as `messages.0.role`.

    Of a field of several kinds pydantic tells what is wrong with each, with the kind in the place: then it is the way
    that they have in common.
    """
    paths = [_fields_of(place) for place in places]
    has_kinds = any(len(path) < len(place) for path, place in zip(paths, places, strict=True))
    if not has_kinds:
        return paths[0]
    steps = takewhile(lambda step: len(set(step)) == 1, zip(*paths, strict=False))
    return [step[0] for step in steps]


def _fields_of(place: Place) -> list[str]:
    first, *others = place
    is_field = [isinstance(part, int) or (part not in _TYPES and _FIELD.fullmatch(part)) for part in others]
    return [str(first), *(str(part) for part, holds in zip(others, is_field, strict=True) if holds)]


def native(kind: type[Kind], /, **values: Any) -> Kind:
    """Return the request that a protocol's body means; raises `WrongForm` for values that it may not have."""
    try:
        return kind(**values)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise first_problem([{**problem, "loc": ("body", *problem["loc"])} for problem in problems]) from None


@contextmanager
def naming(**fields: str) -> Iterator[None]:
    """Name fields in errors as a protocol does: those of the native request, and what the client has sent for them."""
    try:
        yield
    except ServiceError as error:
        theirs = fields.get(error.param or "")
        if theirs is not None:
            ours = str(error.param)
            error.args = (error.message.replace(ours, theirs, 1), theirs, *error.args[2:])
        raise
