"""Tools in this protocol's form: those that a model may call, and its calls."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.api.observing import observed
from service.api.protocols.nulls import NullsLeftOut
from service.errors import InvalidRequest
from service.schemas import NamedTool, Response, ToolChoice
from service.schemas.request import Text


class FunctionName(NullsLeftOut):
    """A function that is to be called."""

    name: Text


class ChosenTool(NullsLeftOut):
    """The tool that is to be called."""

    type: Literal["function"]
    function: FunctionName


OpenAIToolChoice = Literal["none", "auto", "required"] | ChosenTool


def fields_of_tools(tools: list[dict[str, Any]], choice: OpenAIToolChoice, *, several: bool) -> dict[str, Any]:
    """Return what is said of tools, in the task's words; raises `InvalidRequest`."""
    if choice == "none" or (not tools and choice == "auto"):
        return {}
    if not tools:
        raise InvalidRequest("tool_choice: there is nothing to choose from; send tools, too", "tool_choice")
    native: ToolChoice = NamedTool(name=choice.function.name) if isinstance(choice, ChosenTool) else choice
    return {"tools": tools, "tool_choice": native, "parallel_tool_calls": several}


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
        return cls(index=index, id=f"call-{observed().id}-{choice}-{number}", type="function", function=function)
