"""Conversations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from service.schemas.request import Text, few_together

MAX_MESSAGES = 4096
MAX_PARTS = 4096  # of all messages
# No free choice: a template may make a control token of a role, as '<|' + role + '|>'.
Role = Literal["system", "developer", "user", "assistant", "tool", "function", "ipython"]


class TextPart(BaseModel):
    """A part of a message's content."""

    type: Literal["text"]
    text: Text

    @model_validator(mode="before")
    @classmethod
    def _refusal_is_a_text(cls, given: Any) -> Any:  # which an assistant's message of OpenAI's may have
        is_refusal = isinstance(given, dict) and given.get("type") == "refusal"
        return {"type": "text", "text": given["refusal"]} if is_refusal else given


class Message(BaseModel):
    """What one side said; further fields, such as tool_calls, go to the chat template as they are."""

    model_config = ConfigDict(extra="allow")

    role: Role
    content: Text | Annotated[list[TextPart], Field(fail_fast=True, max_length=MAX_PARTS)] | None = Field(
        None, description="a text, or a list of {type: text, text}, which are joined by line breaks"
    )

    @field_validator("content", mode="before")
    @classmethod
    def _parts_are_texts(cls, content: Any) -> Any:
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind not in {"text", "refusal"}:
                words = "a part of type {kind} is not read here; send text"
                raise PydanticCustomError("part", words, {"kind": ascii(kind[:32])[1:-1]})
            if kind == "refusal" and not isinstance(part.get("refusal"), str):
                raise PydanticCustomError("part", "a part of type refusal has no text as its refusal")
        return content

    def text(self) -> str:
        """Return the content as one text."""
        if isinstance(self.content, list):
            # With nothing between them two harmless parts could make a control token.
            return "\n".join(part.text for part in self.content)
        return self.content or ""


Messages = Annotated[
    list[Message],
    Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
    few_together("Messages", "parts", MAX_PARTS, "content"),
]
