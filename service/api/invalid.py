"""What is wrong with a body, in a sentence that names the field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from service.api.shared_bodies import place_of
from service.errors import NotJson, ServiceError, WrongForm
from service.schemas.request import SLIP

Kind = TypeVar("Kind", bound=BaseModel)


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
    asked = dict.fromkeys(
        problem["msg"] for problem, place in zip(problems, places, strict=True) if place[1:2] == places[0][1:2]
    )
    param = str(places[0][1])
    return WrongForm(f"{param}: {', or: '.join(asked)}", param)


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
