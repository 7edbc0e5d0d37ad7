"""Calls of tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from service.schemas.request import Response, Text


def _both_forms(schema: dict[str, Any]) -> None:
    ours = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    openai = {
        "type": "object",
        "properties": {"type": {"const": "function"}, "function": ours},
        "required": ["type", "function"],
    }
    for name in ("type", "properties", "required", "additionalProperties"):
        schema.pop(name)
    schema["anyOf"] = [ours, openai]


class NamedTool(BaseModel):
    """One of the tools, which the model is to call; also in OpenAI's form, {type: function, function: {name}}."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_both_forms)

    name: Text

    @model_validator(mode="before")
    @classmethod
    def _without_its_type(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("type") == "function":
            function = given.get("function", given)
            return {"name": function.get("name")} if isinstance(function, dict) else function
        if isinstance(given, dict) and isinstance(kind := given.get("type"), str):
            words = "the type {kind} is not done here; send none, auto, required, or the name of a tool"
            raise PydanticCustomError("choice", words, {"kind": ascii(kind[:32])[1:-1]})
        return given


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class ToolCall(Response):
    """A tool that the model calls."""

    name: str
    arguments: str = Field(description="an object as JSON; cut where the choice was")


class ToolCallPiece(Response):
    """A piece of a call; the first one has the name."""

    index: int = Field(description="of the call, among those of its choice")
    name: str | None = None
    arguments: str
