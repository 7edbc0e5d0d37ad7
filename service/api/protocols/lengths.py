"""Lengths to cut texts at, which other servers let a client choose, and which are the model's own here."""

from __future__ import annotations

from service.errors import InvalidRequest


def check_length(name: str, wanted: int | None, limit: int) -> None:
    """Refuse, as `InvalidRequest`, that texts be cut to fewer tokens than the model's limit, by a field of that name.

    None and what is negative ask for the model's own.
    """
    if wanted is not None and 0 <= wanted < limit:
        raise InvalidRequest(
            f"{name} is {wanted}; texts are cut where they are too long for the model, whose limit is {limit} tokens; "
            f"send {limit} or more, or leave it out",
            name,
        )
