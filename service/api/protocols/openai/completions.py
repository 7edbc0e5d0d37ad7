"""`/v1/completions`."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from service.api.calls import Calls
from service.api.protocols.nulls import WithNulls
from service.api.protocols.openai.answers import (
    Chunk,
    ChunkChoice,
    OpenAIFinishReason,
    OpenAIUsage,
    finish_reason_of,
)
from service.api.protocols.openai.forms import FORM_EXAMPLE
from service.api.protocols.openai.generation import pieces, whole
from service.api.protocols.openai.requests import ChoicesRequest
from service.errors import InvalidRequest
from service.schemas import (
    Choice,
    GenerateEvent,
    GenerateRequest,
    Response,
    TokenLogprob,
)
from service.schemas.request import Ids, ListsOfIds, Text, Texts
from service.turns import Turn

EXAMPLES = {
    "prompt": {"summary": "a prompt to continue", "value": {"prompt": "Once upon a time", "max_tokens": 40}},
    "several": {
        "summary": "two choices for each of two prompts",
        "value": {"prompt": ["Once upon a time", "The dog"], "n": 2, "seed": 1, "max_tokens": 20},
    },
    "scores": {
        "summary": "log probabilities of a text",
        "value": {"prompt": "The dog was good.", "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0},
    },
    "json": {
        "summary": "JSON, as a schema describes it",
        "value": {"prompt": "Tom is six years old.\n", "max_tokens": 60, "response_format": FORM_EXAMPLE},
    },
    "stream": {
        "summary": "a stream that ends with the usage",
        "value": {"prompt": "Once", "max_tokens": 20, "stream": True, "stream_options": {"include_usage": True}},
    },
}


class CompletionRequest(ChoicesRequest):
    """Prompts to continue."""

    prompt: Text | Ids | Texts | ListsOfIds = Field(
        description="a text, a list of texts, or token ids of one or several, which are taken as they are"
    )
    logprobs: int | None = Field(None, ge=0, le=20, description="likeliest tokens to report at each place")
    echo: bool = Field(False, description="begin each choice with its prompt, and its logprobs with the prompt's")

    @field_validator("logprobs", mode="before")
    @classmethod
    def _false_asks_for_none(cls, value: Any) -> Any:
        return None if value is False else value  # as a number it would be 0, which asks for the tokens' own

    def task_request(self) -> GenerateRequest:
        """Return it in the task's words."""
        if (self.model_extra or {}).get("add_special_tokens", True) is not True:
            raise InvalidRequest(
                "add_special_tokens is always true here; send ids, which are taken as they are", "add_special_tokens"
            )
        fields = {"echo": self.echo, "prompt": self.prompt}
        return self.native(**fields, **({} if self.logprobs is None else {"logprobs": self.logprobs}))


class CompletionLogprobs(Response):
    """Log probabilities, a list entry for each token; before a prompt's first token stands nothing."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int] = Field(
        description="where each token begins in the text, in characters; the parts of one begin where it does. The "
        "tokens of a prompt are counted as they read, which a tokenizer may have normalised"
    )


class CompletionChoice(WithNulls):
    """One continuation."""

    may_be_null = ("logprobs",)

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: OpenAIFinishReason


class Completion(Response):
    """The choices: `n` for the first prompt, then `n` for the second, and so on."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: OpenAIUsage


class CompletionChunkChoice(ChunkChoice):
    """A piece of a continuation."""

    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: OpenAIFinishReason | None = None


class CompletionChunk(Chunk):
    """A piece of one choice, or the usage."""

    object: Literal["text_completion"] = "text_completion"
    choices: Annotated[list[CompletionChunkChoice], Field(max_length=1)]


async def completion(request: CompletionRequest, calls: Calls) -> Completion:
    """Answer a request by the task of generation."""
    return Completion.model_construct(**await whole(calls, request, "generate", "cmpl", _choice))


async def completion_chunks(request: CompletionRequest, calls: Calls) -> AsyncGenerator[CompletionChunk, None]:
    """Yield an answer's chunks; raises a `ServiceError`."""
    written: dict[int, _Written] = defaultdict(_Written)  # by the choice's index

    async def piece(event: GenerateEvent, turn: Turn) -> CompletionChunkChoice:
        return await _piece(event, written[event.index], turn)

    chunks = pieces(calls, request, "generate", "cmpl", piece)
    async with aclosing(chunks):
        async for fields in chunks:
            yield CompletionChunk.model_construct(**fields)


async def _choice(choice: Choice, turn: Turn) -> CompletionChoice:
    logprobs = None if choice.logprobs is None else await _logprobs(choice.logprobs, _Written(), turn)
    return CompletionChoice.model_construct(
        index=choice.index, text=choice.text, logprobs=logprobs, finish_reason=finish_reason_of(choice.finish_reason)
    )


async def _piece(event: GenerateEvent, written: _Written, turn: Turn) -> CompletionChunkChoice:
    logprobs = None if event.logprobs is None else await _logprobs(event.logprobs, written, turn)
    return CompletionChunkChoice.model_construct(
        index=event.index,
        text=event.text,
        logprobs=logprobs,
        finish_reason=event.finish_reason and finish_reason_of(event.finish_reason),
    )


class _Written:
    """How many characters tokens have written; a character counts from its last byte on."""

    def __init__(self) -> None:
        self._characters = 0
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def add(self, token: TokenLogprob) -> int:
        """Return where a token begins."""
        if token.bytes is None:  # of a character that was not finished something is shown
            self._characters += len(self._decoder.decode(b"", final=True))
        begin = self._characters
        self._characters += len(token.text if token.bytes is None else self._decoder.decode(bytes(token.bytes)))
        return begin


async def _logprobs(tokens: list[TokenLogprob], written: _Written, turn: Turn) -> CompletionLogprobs:
    top_logprobs, text_offset = [], []
    for token in tokens:
        top_logprobs.append(_top(token))
        text_offset.append(written.add(token))
        await turn.give()
    return CompletionLogprobs.model_construct(
        tokens=[_name(token.text, token.bytes) for token in tokens],
        token_logprobs=[token.logprob for token in tokens],
        top_logprobs=top_logprobs,
        text_offset=text_offset,
    )


def _top(token: TokenLogprob) -> dict[str, float] | None:
    """Return the likeliest tokens, and the chosen one beside them; of those that read alike, the likeliest."""
    if token.logprob is None:
        return None
    top: dict[str, float] = {}
    for alternative in token.top:
        top.setdefault(_name(alternative["text"], alternative.get("bytes")), alternative["logprob"])
    top.setdefault(_name(token.text, token.bytes), token.logprob)
    return top


def _name(text: str, part: tuple[int, ...] | None) -> str:
    r"""Return a token as OpenAI writes it: one that is a part of a character by its bytes, as `bytes:\xc3`."""
    return text if part is None else "bytes:" + "".join(f"\\x{byte:02x}" for byte in part)
