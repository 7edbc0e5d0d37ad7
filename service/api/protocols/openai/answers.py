"""What this protocol's answers have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

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


class ChunkChoice(Response):
    """A piece of a choice; its finish reason is null until the last one, as clients expect."""

    index: int
    finish_reason: OpenAIFinishReason | None = None

    @model_serializer(mode="wrap")
    def _with_finish_reason(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**write(self), "finish_reason": self.finish_reason}


class Chunk(Response):
    """A chunk of a stream; its usage is null until the last one where that was asked for, as clients expect."""

    id: str
    created: int
    model: str
    usage: OpenAIUsage | None = None

    @model_serializer(mode="wrap")
    def _with_usage(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if "usage" in self.model_fields_set:
            written.setdefault("usage", None)
        return written


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
