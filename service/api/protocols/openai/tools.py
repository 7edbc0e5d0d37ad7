"""Tools in this protocol's form: those that a model may call, and its calls."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.api.observing import observed
from service.schemas import Response, ToolChoice


def fields_of_tools(tools: list[dict[str, Any]], choice: ToolChoice, *, several: bool) -> dict[str, Any]:
    """Return what is said of tools, in the task's words: nothing if none are to be called."""
    if choice == "none" or (not tools and choice == "auto"):
        return {}
    return {"tools": tools, "tool_choice": choice, "parallel_tool_calls": several}


class CalledFunction(Response):
    """A function that the model calls, or a piece of its arguments."""

    name: str | None = None
    arguments: str


class CalledTool(Response):
    """A call of a tool; in a stream the first piece of one has its id and its name."""

    index: int | None = Field(None, description="of the call, in a stream")
    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction

    @classmethod
    def of(cls, number: int, choice: int, name: str | None, arguments: str, *, index: int | None = None) -> CalledTool:
        """Return the call of a number, or a piece of it without a name."""
        function = CalledFunction(name=name, arguments=arguments)
        if name is None:
            return cls(index=index, function=function)
        return cls(index=index, id=call_id(number, choice), type="function", function=function)


def call_id(number: int, choice: int = 0) -> str:
    """Return the id of a call of the request in progress, by which its answer is told to the model."""
    return f"call-{observed().id}-{choice}-{number}"
