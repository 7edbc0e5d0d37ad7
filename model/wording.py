"""How errors of libraries are told in ours."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its kind where it says nothing."""
    return (str(error).strip() or repr(error)).splitlines()[0]
