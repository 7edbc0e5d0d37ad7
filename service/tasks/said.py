"""What a piece of an output says, once it is told apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from service.schemas import ToolCall, ToolCallPiece


@dataclass
class Said:
    """The text of an answer, pieces of calls of tools, and reasoning."""

    text: str = ""
    calls: list[ToolCallPiece] = field(default_factory=list)
    reasoning: str = ""


def whole_calls(pieces: Iterable[ToolCallPiece]) -> list[ToolCall]:
    """Put the pieces of one output's calls together."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if piece.name is not None:
            calls.append(ToolCall(name=piece.name, arguments=""))
        calls[piece.index].arguments += piece.arguments
    return calls
