"""`/v1/chat/completions`."""

from __future__ import annotations

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
from service.api.protocols.openai.logprobs import ScoredToken, logprobs_of
from service.api.protocols.openai.requests import ChoicesRequest, ConversationRequest
from service.api.protocols.openai.tools import AllowedTools, CalledTool, Tool, ToolChosen, fields_of_tools
from service.errors import InvalidRequest
from service.schemas import (
    Choice,
    FinishReason,
    GenerateEvent,
    GenerateRequest,
    Response,
    TokenLogprob,
)
from service.schemas.chat import Messages
from service.schemas.generate import MAX_TOOLS
from service.schemas.request import MAX_INT32
from service.turns import Turn

EXAMPLES = {
    "question": {
        "summary": "a question",
        "value": {"messages": [{"role": "user", "content": "Who is Dan?"}], "max_completion_tokens": 40},
    },
    "json": {
        "summary": "JSON, as a schema describes it",
        "value": {
            "messages": [{"role": "user", "content": "Tom is six years old. Who is Tom?"}],
            "max_completion_tokens": 60,
            "response_format": FORM_EXAMPLE,
        },
    },
    "tools": {
        "summary": "a tool that the model may call, for a model whose chat template has a place for tools",
        "value": {
            "messages": [{"role": "user", "content": "Is it raining in Oslo?"}],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "description": "Tells the weather of a city.",
                        "parameters": {
                            "type": "object",
                            "properties": {"city": {"type": "string"}},
                            "required": ["city"],
                        },
                    },
                }
            ],
        },
    },
    "stream": {
        "summary": "a stream that ends with the usage",
        "value": {
            "messages": [{"role": "user", "content": "Who is Dan?"}],
            "max_completion_tokens": 20,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    },
}


class ChatRequest(ChoicesRequest, ConversationRequest):
    """A conversation to continue."""

    messages: Messages
    max_completion_tokens: int | None = Field(
        None, ge=1, le=MAX_INT32, description="another name of max_tokens, which it overrides"
    )
    logprobs: bool = Field(False, description="whether to report each token's log probability")
    top_logprobs: int | None = Field(None, ge=0, le=20, description="with logprobs: likeliest tokens at each place")
    separate_reasoning: bool = Field(
        True,
        description="return the reasoning of a model that reasons in reasoning_content, not in content; always so with "
        "tools, and with logprobs only where it is sent",
    )
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS, fail_fast=True)] = Field(
        [], description="functions that the model may call, each {type: function, function: {name, parameters}}"
    )
    tool_choice: ToolChosen = Field(
        "auto", description="whether the model calls tools: none, as it likes, some, the one of a name, or some of them"
    )
    parallel_tool_calls: bool = Field(True, description="whether it may call several at once")
    add_generation_prompt: bool = Field(True, description="begin an assistant's message behind the conversation")

    @field_validator("best_of", mode="before")
    @classmethod
    def _one_is_none(cls, value: object) -> object:
        return None if value == 1 else value

    def names(self) -> dict[str, str]:
        """Return what this client calls fields of the task's request, where it has sent these."""
        tokens = {} if self.max_completion_tokens is None else {"max_tokens": "max_completion_tokens"}
        return {**super().names(), **tokens}

    def task_request(self) -> GenerateRequest:
        """Return it in the task's words; raises `InvalidRequest`."""
        tools, choice = self.tools, self.tool_choice
        if isinstance(choice, AllowedTools):
            tools, choice = choice.of(tools, _name_of), choice.mode
        # What has log probabilities is whole: they are of all tokens.
        is_whole = self.logprobs and "separate_reasoning" not in self.model_fields_set
        fields: dict[str, Any] = {
            "messages": self.messages,
            "add_generation_prompt": self.add_generation_prompt,
            "chat_template_kwargs": self.template_values,
            "separate_reasoning": self.separate_reasoning and not is_whole,
            **fields_of_tools(tools, choice, several=self.parallel_tool_calls),
        }
        if self.best_of is not None:
            raise InvalidRequest("best_of is for /v1/completions; send n", "best_of")
        if (self.model_extra or {}).get("add_special_tokens"):
            raise InvalidRequest("add_special_tokens: the chat template adds them; leave it out", "add_special_tokens")
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequest("top_logprobs goes with logprobs; send logprobs: true, too", "top_logprobs")
        if self.logprobs:
            fields["logprobs"] = self.top_logprobs or 0
        if self.max_completion_tokens is not None:
            fields["max_tokens"] = self.max_completion_tokens
        return self.native(**fields)


def _name_of(tool: Tool) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else None


class ChatLogprobs(Response):
    """Log probabilities of a message's tokens."""

    content: list[ScoredToken]


class AssistantMessage(WithNulls):
    """What the model says; nothing where it only calls tools."""

    may_be_null = ("content", "refusal")

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | None = Field(None, description="of a model that reasons, what it thinks")
    tool_calls: list[CalledTool] | None = None


ChatFinishReason = OpenAIFinishReason | Literal["tool_calls"]


class ChatChoice(WithNulls):
    """One continuation of the conversation."""

    may_be_null = ("logprobs",)

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatFinishReason


class ChatCompletion(Response):
    """The model's messages, `n` of them."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: OpenAIUsage


class Delta(Response):
    """What a piece adds to a message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CalledTool] | None = None


class ChatChunkChoice(ChunkChoice):
    """A piece of a message."""

    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatFinishReason | None = None


class ChatChunk(Chunk):
    """A piece of one message, or the usage."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: Annotated[list[ChatChunkChoice], Field(max_length=1)]


async def chat_completion(request: ChatRequest, calls: Calls) -> ChatCompletion:
    """Answer a request by the task of generation."""
    return ChatCompletion.model_construct(**await whole(calls, request, "chat", "chatcmpl", _choice))


async def chat_chunks(request: ChatRequest, calls: Calls) -> AsyncGenerator[ChatChunk, None]:
    """Yield an answer's chunks; raises a `ServiceError`.

    Of several choices each begins with a chunk of its own, in order, before any goes on: OpenAI's client fails where
    the second comes before the first, of which something may be held back.
    """
    has_begun = False
    calling: set[int] = set()  # choices, by their index

    async def piece(event: GenerateEvent, turn: Turn) -> ChatChunkChoice:
        if event.tool_calls:
            calling.add(event.index)
        return await _piece(event, turn, is_first=request.n == 1 and not has_begun, calls=event.index in calling)

    chunks = pieces(calls, request, "chat", "chatcmpl", piece)
    async with aclosing(chunks):
        async for fields in chunks:
            for index in range(request.n if request.n > 1 and not has_begun else 0):
                yield ChatChunk.model_construct(**{**fields, "choices": [_opening(index)]})
            yield ChatChunk.model_construct(**fields)
            has_begun = True


async def _choice(choice: Choice, turn: Turn) -> ChatChoice:
    calls = choice.tool_calls or []
    called = [CalledTool.of(number, choice.index, call.name, call.arguments) for number, call in enumerate(calls)]
    message = AssistantMessage(
        content=choice.text or (None if calls else ""),
        refusal=None,
        reasoning_content=choice.reasoning,
        tool_calls=called or None,
    )
    return ChatChoice.model_construct(
        index=choice.index,
        message=message,
        logprobs=await _logprobs(choice.logprobs, turn),
        finish_reason=_finish_reason(choice.finish_reason, calls=bool(calls)),
    )


def _opening(index: int) -> ChatChunkChoice:
    return ChatChunkChoice.model_construct(
        index=index, delta=Delta(role="assistant", content=""), logprobs=None, finish_reason=None
    )


async def _piece(event: GenerateEvent, turn: Turn, *, is_first: bool, calls: bool) -> ChatChunkChoice:
    pieces = [
        CalledTool.of(piece.index, event.index, piece.name, piece.arguments, index=piece.index)
        for piece in event.tool_calls or []
    ]
    return ChatChunkChoice.model_construct(
        index=event.index,
        delta=Delta(
            role="assistant" if is_first else None,
            content=event.text or (None if calls or event.reasoning else ""),
            reasoning_content=event.reasoning,
            tool_calls=pieces or None,
        ),
        logprobs=await _logprobs(event.logprobs, turn),
        finish_reason=event.finish_reason and _finish_reason(event.finish_reason, calls=calls),
    )


def _finish_reason(reason: FinishReason, *, calls: bool) -> ChatFinishReason:
    """Return a task's reason as this route has it, which tells a client that tools are to be asked now."""
    known = finish_reason_of(reason)
    return "tool_calls" if calls and known == "stop" else known


async def _logprobs(tokens: list[TokenLogprob] | None, turn: Turn) -> ChatLogprobs | None:
    return None if tokens is None else ChatLogprobs.model_construct(content=await logprobs_of(tokens, turn))
