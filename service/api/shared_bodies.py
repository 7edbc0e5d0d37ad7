"""The bodies of paths that the native API shares with another protocol: which of the two a body is, its fields tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.api.error_forms import ErrorForm
from service.api.observing import observed

# The tags of the two. In a validation error one stands before the field.
OURS, THEIRS = "native", "foreign"
QUESTIONS = frozenset({"predicate", "choice", "score"})  # kinds of OpenAI's decisions: one stands behind a number


def whose(is_theirs: Callable[[Mapping[str, Any]], bool], form: ErrorForm) -> Callable[[Any], str]:
    """Return what tells whose body it is, by its fields; from then on errors have the protocol's form."""

    def tag(body: Any) -> str:
        if not isinstance(body, dict) or not is_theirs(body):
            return OURS
        observed().error_form = form
        return THEIRS

    return tag


def has(their_field: str, our_field: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return what tells by the field with the inputs; a body that has both, or neither, is ours."""
    return lambda body: their_field in body and our_field not in body


def place_of(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return where in the body a validation error is: without the tags of kinds, and within `parameters`."""
    outer = location[1:2]
    is_wrapped = outer in {(OURS,), (THEIRS,)} or (outer == ("parameters",) and len(location) > 2)
    place = location[:1] + location[2:] if is_wrapped else location
    if is_wrapped and place[1:2] == ("generate_parameters",) and len(place) > 2:
        place = place[:1] + place[2:]
    before = (None, *place)
    return tuple(part for at, part in enumerate(place) if not (isinstance(before[at], int) and part in QUESTIONS))
