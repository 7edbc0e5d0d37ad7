"""Generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from service.schemas.chat import Message
from service.schemas.decoding import DecodingRequest
from service.schemas.request import Ids, Response, Text, Texts, Usage

FinishReason = Literal["stop", "length"]
StopText = Annotated[str, Field(max_length=256)]
Bias = Annotated[float, Field(ge=-100, le=100)]
MAX_BIASES = 300
MAX_MESSAGES, MAX_TOOLS = 4096, 256


def _few(biases: object) -> object:
    # Before each is looked at: a dictionary has an error for every wrong entry.
    if isinstance(biases, dict) and len(biases) > MAX_BIASES:
        raise PydanticCustomError(
            "too_long",
            "Dictionary should have at most {most} items, not {found}",
            {"most": MAX_BIASES, "found": len(biases)},
        )
    return biases


GENERATE_EXAMPLES = {
    "prompt": {"summary": "a prompt to continue", "value": {"prompt": "Once upon a time", "max_tokens": 40}},
    "search": {
        "summary": "the best of four beams, without a repeated phrase",
        "value": {"prompt": "The dog", "beam_size": 4, "n": 2, "no_repeat_ngram_size": 3, "max_tokens": 20},
    },
    "messages": {
        "summary": "a conversation, for a model with a chat template",
        "value": {"messages": [{"role": "user", "content": "Who is Dan?"}], "max_tokens": 40, "temperature": 0},
    },
}


class GenerateRequest(DecodingRequest):
    """A prompt to continue, or several, or a conversation. Defaults are the package's, and ours where it has none."""

    inputs: ClassVar = "prompt"

    prompt: Text | Ids | Texts | None = Field(
        None, description="a text, a list of token ids, or a list of texts", examples=["Once upon a time"]
    )
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)] | None = Field(
        None, description="a conversation in place of a prompt, for a model that has a chat template"
    )
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = Field(
        None, description="functions that the chat template may offer the model"
    )
    add_generation_prompt: bool = Field(True, description="begin an assistant's message behind the conversation")
    chat_template_kwargs: dict[str, Any] = Field({}, description="more values for the chat template")
    max_tokens: int | None = Field(None, ge=1, description="most tokens to generate for each choice; 128")
    temperature: float | None = Field(None, ge=0, le=10, description="0 is greedy; 0.8")
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="sample from the k likeliest tokens; 0 is all")
    top_p: float | None = Field(
        None, gt=0, le=1, description="sample from the fewest tokens whose probabilities reach p"
    )
    min_p: float | None = Field(None, ge=0, le=1, description="leave out tokens less likely than p times the likeliest")
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="of tokens in the output")
    frequency_penalty: float = Field(
        0.0, ge=-2, le=2, description="of tokens in the output, as often as they are there"
    )
    logit_bias: Annotated[dict[int, Bias], BeforeValidator(_few)] = Field(
        {}, max_length=MAX_BIASES, description="token id → bias"
    )
    stop: StopText | Annotated[list[StopText], Field(max_length=16, fail_fast=True)] | None = Field(
        None, description="texts that end a choice; they are left out of it"
    )
    stop_ids: Ids = Field([], max_length=64, description="token ids that end a choice, beside the model's own")
    seed: int | None = Field(None, ge=0, lt=2**63, description="same seed, same text")
    n: int = Field(1, ge=1, description="choices for each prompt")
    logprobs: int | None = Field(None, ge=0, le=20, description="alternatives to report for each token")
    echo: bool = Field(False, description="begin each choice with its prompt, and its logprobs with the prompt's")
    beam_size: int | None = Field(
        None,
        ge=1,
        description="more than 1: beam search instead of sampling, whatever the temperature; a package's own beams "
        "give way to a request that says how to sample",
    )
    truncate: bool = Field(
        False, description="cut the end of a text that is too long, of a model that turns texts into texts"
    )

    def count_inputs(self) -> int:
        """Return how many choices it asks for."""
        if self.prompt is None:
            return self.n
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
