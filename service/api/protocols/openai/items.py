"""What `/v1/responses` and `/v1/decisions` read: texts in parts, and items of a conversation."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from service.api.protocols.nulls import NullsLeftOut
from service.schemas.chat import MAX_PARTS
from service.schemas.request import Text, few_together, whole_json

MAX_ITEMS = 4096
# What an item of a type cannot do without, as it would say nothing, or answer nobody.
NEEDED = {
    "message": ("content",),
    "function_call": ("call_id", "name"),
    "function_call_output": ("call_id", "output"),
}


class Part(NullsLeftOut):
    """A part of a text: a text itself, or JSON, which is read as text."""

    type: Literal["input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text", "input_json"]
    text: Text = ""
    refusal: Text = ""
    data: Any = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        name = "refusal" if self.type == "refusal" else "text"
        if self.type != "input_json" and name not in self.model_fields_set:  # JSON may be null
            raise PydanticCustomError("part", "a part of type {type} has no {name}", {"type": self.type, "name": name})
        return self

    def as_text(self) -> str:
        """Return what it says."""
        if self.type == "input_json":
            return json.dumps(self.data, ensure_ascii=False)
        return self.refusal if self.type == "refusal" else self.text


def joined(parts: str | list[Part]) -> str:
    """Return a text, or its parts, as one text."""
    return parts if isinstance(parts, str) else "\n".join(part.as_text() for part in parts)


def _whole(parts: str | list[Part]) -> str | list[Part]:
    """Refuse half a surrogate pair in JSON, in which texts are not looked at one by one."""
    if not isinstance(parts, str):
        for part in parts:
            if part.type == "input_json":
                whole_json(part.data)
    return parts


Parts = Annotated[
    Text | Annotated[list[Part], Field(max_length=MAX_PARTS, fail_fast=True)],
    AfterValidator(_whole),
]


class InputItem(NullsLeftOut):
    """A message, a call of a tool, what a tool has answered, or what the model thought."""

    type: Literal[
        "message",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "reasoning",
    ] = "message"
    role: Literal["user", "developer", "system", "assistant"] = "user"
    content: Parts = ""
    summary: Parts = ""
    call_id: Text = ""
    name: Text = ""
    arguments: Text = ""
    input: Text = ""
    output: Parts = ""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for name in NEEDED.get(self.type, ()):
            if name not in self.model_fields_set:
                words = "an item of type {type} has no {name}"
                raise PydanticCustomError("item", words, {"type": self.type, "name": name})
        return self

    def as_text(self) -> str:
        """Return what it says."""
        match self.type:
            case "message":
                return joined(self.content)
            case "function_call" | "custom_tool_call":
                return f"{self.name}({self.arguments or self.input})"
            case "reasoning":
                return joined(self.content) or joined(self.summary)
            case _:
                return joined(self.output)


InputItems = Annotated[
    list[InputItem],
    Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True),
    few_together("Items", "parts", MAX_PARTS, "content", "summary", "output"),
]
