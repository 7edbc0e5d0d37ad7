"""Generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from service.schemas.request import Ids, Request, Response, Text, Texts, Usage

FinishReason = Literal["stop", "length"]
StopText = Annotated[str, Field(max_length=256)]
Bias = Annotated[float, Field(ge=-100, le=100)]
MAX_BIASES = 300


def _few(biases: object) -> object:
    # Before each is looked at: a dictionary has an error for every wrong entry.
    if isinstance(biases, dict) and len(biases) > MAX_BIASES:
        raise PydanticCustomError(
            "too_long",
            "Dictionary should have at most {most} items, not {found}",
            {"most": MAX_BIASES, "found": len(biases)},
        )
    return biases


class GenerateRequest(Request):
    """A prompt to continue, or several."""

    inputs: ClassVar = "prompt"

    prompt: Text | Ids | Texts = Field(
        description="a text, a list of token ids, or a list of texts", examples=["Once upon a time"]
    )
    max_tokens: int = Field(128, ge=1, description="most tokens to generate for each choice")
    min_tokens: int = Field(0, ge=0, description="tokens to generate before the end may come")
    temperature: float = Field(0.8, ge=0, le=10, description="0 is greedy")
    top_k: int = Field(0, ge=0, le=1_000_000, description="sample from the k likeliest tokens; 0 is all")
    top_p: float = Field(1.0, gt=0, le=1, description="sample from the fewest tokens whose probabilities reach p")
    min_p: float = Field(0.0, ge=0, le=1, description="leave out tokens less likely than p times the likeliest")
    repetition_penalty: float = Field(1.0, ge=0.01, le=10)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: Annotated[dict[int, Bias], BeforeValidator(_few)] = Field(
        {}, max_length=MAX_BIASES, description="token id → bias"
    )
    stop: StopText | Annotated[list[StopText], Field(max_length=16, fail_fast=True)] = Field(
        [], description="texts that end a choice; they are left out of it"
    )
    stop_ids: Ids = Field([], max_length=64, description="token ids that end a choice, beside the model's own")
    seed: int | None = Field(None, ge=0, lt=2**63, description="same seed, same text")
    n: int = Field(1, ge=1, description="choices for each prompt")
    logprobs: int | None = Field(None, ge=0, le=20, description="alternatives to report for each token")
    echo: bool = Field(False, description="begin each choice with its prompt, and its logprobs with the prompt's")
    beam_size: int = Field(
        1, ge=1, description="more than 1: beam search instead of sampling, whatever the temperature"
    )
    length_penalty: float = Field(
        1.0, ge=-5, le=5, description="beam search: scores are divided by length to this power"
    )
    stream: bool = Field(False, description="answer with server-sent events")

    def count_inputs(self) -> int:
        """Return how many choices it asks for."""
        is_ids = isinstance(self.prompt, list) and bool(self.prompt) and isinstance(self.prompt[0], int)
        return self.n if is_ids else self.n * super().count_inputs()


class TopLogprob(TypedDict):
    """An alternative at a token's place."""

    # An answer may have a hundred thousand of these. As any objects but dictionaries of plain values they would be the
    # garbage collector's to look at, and everybody would wait while it does.
    id: int
    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and the likeliest alternatives at its place; nothing stands before a prompt's first token."""

    id: int
    text: str
    logprob: float | None
    top: list[TopLogprob]


class Choice(Response):
    """One continuation."""

    index: int
    text: str
    finish_reason: FinishReason
    score: float | None = Field(None, description="of a beam search")
    logprobs: list[TokenLogprob] | None = None


class GenerateResponse(Response):
    """The choices: `n` for the first prompt, then `n` for the second, and so on."""

    model: str
    choices: list[Choice]
    usage: Usage


class GenerateEvent(Response):
    """A piece of one choice; the last piece has the finish reason."""

    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprob] | None = None
