"""What `/v1/responses` gives: items, the answer that has them, and the events of a stream."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.api.protocols.nulls import WithNulls
from service.api.protocols.openai.answers import DetailedUsage
from service.api.protocols.openai.logprobs import ScoredToken
from service.api.streaming import NamedEvent
from service.schemas import Response

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Response):
    """The text of a message."""

    type: Literal["output_text"] = "output_text"
    text: str = ""
    annotations: list[Any] = Field([], max_length=0)
    logprobs: list[ScoredToken] = Field([])


class ReasoningText(Response):
    """The text of what the model thinks."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str = ""


class ReasoningItem(Response):
    """What a model that reasons thinks before it speaks."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    summary: list[Any] = Field([], max_length=0)
    content: list[ReasoningText]
    status: ItemStatus


class MessageItem(Response):
    """What the model says."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]
    status: ItemStatus


class CallItem(Response):
    """A call of a function; arguments are JSON, which is cut where the answer is."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


Item = ReasoningItem | MessageItem | CallItem


class Incomplete(Response):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseObject(WithNulls):
    """The answer, and what was asked."""

    may_be_null = (
        "completed_at",
        "error",
        "incomplete_details",
        "instructions",
        "max_output_tokens",
        "previous_response_id",
        "temperature",
        "top_p",
        "usage",
    )

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Literal["in_progress", "completed", "incomplete"]
    background: Literal[False] = False
    error: None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[Item]
    parallel_tool_calls: bool
    previous_response_id: None = None
    store: Literal[False] = False
    temperature: float | None = Field(description="as it was asked for; null where the model's own holds")
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_p: float | None
    truncation: Literal["disabled"] = "disabled"
    usage: DetailedUsage | None = None


class ErrorEvent(NamedEvent):
    """What ends a stream in which something fails; OpenAI's own clients raise what `error` has."""

    type: str = "error"
    sequence_number: int
    code: str
    message: str
    param: str | None
    error: Any


class ResponseEvent(NamedEvent):
    """One event of a stream; which fields it has follows from its type."""

    sequence_number: int
    response: ResponseObject | None = None
    output_index: int | None = None
    item: Item | None = None
    item_id: str | None = None
    content_index: int | None = None
    part: OutputText | ReasoningText | None = None
    delta: str | None = None
    text: str | None = None
    arguments: str | None = None
    logprobs: list[ScoredToken] | None = None
