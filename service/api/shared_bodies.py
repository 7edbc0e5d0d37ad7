"""The bodies of paths that the native API shares with another protocol: which of the two a body is, its fields tell."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from service.api.error_forms import ErrorForm
from service.api.observing import observed

# The tags of the two. In a validation error one stands before the field.
OURS, THEIRS = "native", "foreign"
QUESTIONS = frozenset({"predicate", "choice", "score"})  # kinds of OpenAI's decisions: one stands behind a number


def whose(our_fields: Collection[str], their_field: str, form: ErrorForm) -> Callable[[Any], str]:
    """Return what tells by the field with the inputs whose body it is; one that has fields of both, or none, is ours.

    From then on errors have the protocol's form.
    """

    def tag(body: Any) -> str:
        if not isinstance(body, dict) or their_field not in body or any(name in body for name in our_fields):
            return OURS
        observed().error_form = form
        return THEIRS

    return tag


def place_of(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return where in the body a validation error is: without the tags of kinds, and within `parameters`."""
    outer = location[1:2]
    is_wrapped = outer in {(OURS,), (THEIRS,)} or (outer == ("parameters",) and len(location) > 2)
    place = location[:1] + location[2:] if is_wrapped else location
    if is_wrapped and place[1:2] == ("generate_parameters",) and len(place) > 2:
        place = place[:1] + place[2:]
    before = (None, *place)
    return tuple(part for at, part in enumerate(place) if not (isinstance(before[at], int) and part in QUESTIONS))
