"""What all requests may say of how outputs are chosen. What they leave out is as the package has it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from service.schemas.request import MAX_INT32, Ids, Request

MAX_SUPPRESSED = 1024
FinishReason = Literal["stop", "length", "grammar"]
CUT: Literal["length"] = "length"  # the finish reason of what has not ended
# Fields of requests that say how tokens are drawn, or ask about tokens.
OF_TOKENS = frozenset({"temperature", "top_k", "top_p", "min_p", "seed", "logprobs", "best_of"})


class DecodingRequest(Request):
    """A request whose answer is decoded token by token."""

    max_tokens: int | None = Field(None, ge=1, le=MAX_INT32, description="most tokens to generate")
    min_tokens: int | None = Field(
        None, ge=0, le=MAX_INT32, description="tokens to generate before an end or a stop text may come"
    )
    beam_size: int | None = Field(None, ge=1, le=MAX_INT32, description="beams of a search; 1 searches none")
    length_penalty: float | None = Field(
        None, ge=-5, le=5, description="beam search: scores are divided by length to this power; 1 if nobody says"
    )
    early_stopping: bool | Literal["never"] | None = Field(
        None,
        description="beam search: true ends it when beam_size have finished, false when no live beam is better at its "
        "length, never when none can become better",
    )
    repetition_penalty: float | None = Field(None, ge=0.01, le=10, description="of tokens in prompt and output")
    no_repeat_ngram_size: int | None = Field(
        None,
        ge=0,
        le=MAX_INT32,
        description="so many tokens in a row come only once, in prompt and output; 0: any may come again",
    )
    suppress_ids: Ids | None = Field(
        None, max_length=MAX_SUPPRESSED, description="token ids that never come, in place of the package's"
    )
    stream: bool = Field(False, description="answer with server-sent events")

    def beams(self, default: int) -> int:
        """Return how wide a search it asks for; one that says how tokens are drawn, or asks about them, for none."""
        if self.beam_size is not None:
            return self.beam_size
        return 1 if any(getattr(self, field, None) is not None for field in OF_TOKENS) else default
