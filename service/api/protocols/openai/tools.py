"""Tools in this protocol's form: those that a model may call, and its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from service.api.observing import observed
from service.errors import InvalidRequest
from service.schemas import Response, ToolChoice
from service.schemas.generate import MAX_TOOLS
from service.schemas.request import Text

Tool = dict[str, Any]  # as a client describes it


class _Typed(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _without_a_level(cls, given: Any) -> Any:
        """In chat's form all but the type is one level deeper, in a field that is called as the type."""
        inner = given.get(str(given.get("type"))) if isinstance(given, dict) else None
        return {"type": given.get("type"), **inner} if isinstance(inner, dict) else given


class AllowedTool(_Typed):
    """One of the tools, by its name; also in chat's form, {type: function, function: {name}}."""

    type: Literal["function"]
    name: Text


class AllowedTools(_Typed):
    """Some of the tools, to which the model is confined; it is not told of the others.

    Also in chat's form, {type: allowed_tools, allowed_tools: {mode, tools}}.
    """

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[AllowedTool], Field(max_length=MAX_TOOLS, fail_fast=True)]

    def of(self, tools: list[Tool], name_of: Callable[[Tool], object]) -> list[Tool]:
        """Return those of the tools; raises `InvalidRequest` for a name that none has."""
        known = {name: tool for tool in tools if isinstance(name := name_of(tool), str)}
        names = dict.fromkeys(tool.name for tool in self.tools)
        for name in names:
            if name not in known:
                raise InvalidRequest(f"tool_choice: no tool is called {name[:64]!r}", "tool_choice")
        return [known[name] for name in names]


def _kind_of_choice(choice: object) -> str:
    is_some = isinstance(choice, AllowedTools) or (isinstance(choice, dict) and choice.get("type") == "allowed_tools")
    return "Some" if is_some else "One"


# The tags are in the places of errors, where no field has a capital.
ToolChosen = Annotated[
    Annotated[AllowedTools, Tag("Some")] | Annotated[ToolChoice, Tag("One")], Discriminator(_kind_of_choice)
]


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
    """Return the id of a call of the request in progress, by which its answer is told to the model.

    It has 29 characters; OpenAI takes 40, where a conversation may go on.
    """
    return f"call_{observed().nonce[:16]}{choice:03x}{number:05x}"
