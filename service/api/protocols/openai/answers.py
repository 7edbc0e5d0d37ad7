"""What this protocol's answers have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from service import schemas
from service.api.observing import observed
from service.schemas import Response

OpenAIFinishReason = Literal["stop", "length"]


class OpenAIUsage(Response):
    """Counted tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, usage: schemas.Usage) -> OpenAIUsage:
        """Return a task's counts as this protocol has them."""
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        return cls(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def finish_reason_of(reason: schemas.FinishReason) -> OpenAIFinishReason:
    """Return a task's reason as this protocol has it, which says of any answer that is not whole that it was cut."""
    return "stop" if reason == "stop" else "length"


class WithNulls(Response):
    """A part of an answer in which some fields without a value are null, as clients expect; others are left out."""

    may_be_null: ClassVar[tuple[str, ...]]

    @model_serializer(mode="wrap")
    def _with_nulls(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name in self.may_be_null:
            if name in self.model_fields_set:
                written.setdefault(name, None)
        return written


class ChunkChoice(WithNulls):
    """A piece of a choice; its finish reason is null until the last one."""

    may_be_null = ("finish_reason", "logprobs")

    index: int


class Chunk(WithNulls):
    """A chunk of a stream; its usage is null until the last one where that was asked for."""

    may_be_null = ("usage",)

    id: str
    created: int
    model: str
    usage: OpenAIUsage | None = None


@dataclass(frozen=True)
class Stamp:
    """What an answer and each chunk of a stream begins with; the id is the request's."""

    id: str
    created: int
    model: str

    @classmethod
    def of(cls, kind: str, model: str) -> Stamp:
        """Return the stamp of the request in progress."""
        return cls(f"{kind}-{observed().id}", int(time.time()), model)

    def fields(self) -> dict[str, Any]:
        """Return it as fields of an answer."""
        return {"id": self.id, "created": self.created, "model": self.model}
