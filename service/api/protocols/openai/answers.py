"""What this protocol's answers have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from service import __version__, schemas
from service.api.observing import observed
from service.api.protocols.nulls import WithNulls
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


class InputDetails(Response):
    """What of the input a cache had, which is not counted here: always 0."""

    cache_write_tokens: int = 0
    cached_tokens: int = 0


class OutputDetails(Response):
    """What of the output was reasoning, which is in `output_tokens` and not counted apart: always 0."""

    reasoning_tokens: int = 0


class DetailedUsage(Response):
    """Counted tokens, as the newer routes have them."""

    input_tokens: int
    input_tokens_details: InputDetails = InputDetails()
    output_tokens: int
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int

    @classmethod
    def of(cls, usage: schemas.Usage) -> DetailedUsage:
        """Return a task's counts as this protocol has them."""
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        return cls(input_tokens=prompt, output_tokens=completion, total_tokens=prompt + completion)


def finish_reason_of(reason: schemas.FinishReason) -> OpenAIFinishReason:
    """Return a task's reason as this protocol has it, which says of any answer that is not whole that it was cut."""
    return "stop" if reason == "stop" else "length"


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
    system_fingerprint: str
    usage: OpenAIUsage | None = None


FINGERPRINT = f"trifold-{__version__}"


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
        return {"id": self.id, "created": self.created, "model": self.model, "system_fingerprint": FINGERPRINT}
