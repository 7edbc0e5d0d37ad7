"""`/v1/responses`: what the model thinks, says and calls, as items in the order in which they come.

Events of a stream are numbered; those of an item tell its place. The last one has the whole answer, or an error.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from service.api.calls import Calls
from service.api.invalid import naming
from service.api.observing import observed
from service.api.protocols.openai.answers import DetailedUsage, finish_reason_of
from service.api.protocols.openai.forms import FORM_EXAMPLE
from service.api.protocols.openai.logprobs import ScoredToken, logprobs_of
from service.api.protocols.openai.response_answers import (
    CallItem,
    ErrorEvent,
    Incomplete,
    Item,
    ItemStatus,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ResponseEvent,
    ResponseObject,
)
from service.api.protocols.openai.response_bodies import ResponsesRequest
from service.api.protocols.openai.tools import call_id
from service.errors import ServiceError
from service.schemas import (
    Choice,
    FinishReason,
    GenerateEvent,
    GenerateResponse,
    ToolCallPiece,
    Usage,
    UsageEvent,
)
from service.turns import Turn

EXAMPLES = {
    "question": {
        "summary": "a question",
        "value": {"input": "Who is Dan?", "max_output_tokens": 40},
    },
    "json": {
        "summary": "JSON, as a schema describes it",
        "value": {
            "instructions": "Answer in JSON.",
            "input": [{"role": "user", "content": "Tom is six years old. Who is Tom?"}],
            "max_output_tokens": 60,
            "text": {"format": {"type": "json_schema", **FORM_EXAMPLE["json_schema"]}},  # type: ignore[dict-item]
        },
    },
    "stream": {
        "summary": "a stream of events",
        "value": {"input": "Who is Dan?", "max_output_tokens": 20, "stream": True},
    },
}


async def response(request: ResponsesRequest, calls: Calls) -> ResponseObject:
    """Answer a request by the task of generation."""
    with _naming(request):
        answer = await calls.answer_as(GenerateResponse, request.task_request(), "chat")
    (choice,) = answer.choices
    items = await _items(choice)
    return _response(request, answer.model, int(time.time()), items, choice.finish_reason, answer.usage)


@contextmanager
def _naming(request: ResponsesRequest) -> Iterator[None]:
    """Name fields in errors as this route does, where a tool has none of its own for what is told of a function."""
    with naming(**request.names()):
        try:
            yield
        except ServiceError as error:
            if error.param == "tools":
                error.args = (error.message.replace(".function.", ".", 1), *error.args[1:])
            raise


async def _items(choice: Choice) -> list[Item]:
    status = _status(choice.finish_reason)
    items: list[Item] = []
    calls = choice.tool_calls or []
    if choice.reasoning:
        thought = [ReasoningText(text=choice.reasoning)]
        items.append(ReasoningItem(id=_id("rs", 0), content=thought, status="completed"))
    if choice.text or not (calls or choice.reasoning):
        said = OutputText.model_construct(text=choice.text, logprobs=await logprobs_of(choice.logprobs or [], Turn()))
        items.append(MessageItem.model_construct(id=_id("msg", len(items)), content=[said], status="completed"))
    for number, call in enumerate(calls):
        place = _id("fc", len(items))
        called = {"call_id": call_id(number), "name": call.name, "arguments": call.arguments}
        items.append(CallItem(id=place, **called, status="completed"))
    items[-1].status = status
    return items


def _response(
    request: ResponsesRequest,
    model: str,
    created_at: int,
    items: list[Item],
    reason: FinishReason | None = None,
    usage: Usage | None = None,
) -> ResponseObject:
    """Return an answer with what was asked; one that is not finished has no reason."""
    status: ItemStatus = "in_progress" if reason is None else _status(reason)
    return ResponseObject.model_construct(
        id=f"resp_{observed().nonce}",
        created_at=created_at,
        completed_at=int(time.time()) if status == "completed" else None,
        status=status,
        error=None,
        incomplete_details=Incomplete() if status == "incomplete" else None,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        metadata=request.metadata,
        model=model,
        output=items,
        parallel_tool_calls=request.parallel_tool_calls,
        previous_response_id=None,
        temperature=request.temperature,
        text={"format": request.text.format.told(), "verbosity": "medium"},
        tool_choice=request.told_choice(),
        tools=request.tools,
        top_p=request.top_p,
        usage=None if usage is None else DetailedUsage.of(usage),
    )


def _status(reason: FinishReason) -> Literal["completed", "incomplete"]:
    return "completed" if finish_reason_of(reason) == "stop" else "incomplete"


def _id(kind: str, place: int) -> str:
    return f"{kind}_{observed().nonce}_{place}"


@dataclass
class ResponseStream:
    """Makes events of a task's pieces, and of these the items of the whole answer."""

    request: ResponsesRequest
    calls: Calls
    model: str = ""
    created_at: int = field(default_factory=lambda: int(time.time()))
    items: list[Item] = field(default_factory=list)  # of which the last may be open
    is_open: bool = False
    texts: list[str] = field(default_factory=list)  # of the open item
    logprobs: list[ScoredToken] = field(default_factory=list)  # of the open message's tokens
    called: int = 0  # functions
    number: int = 0  # of the next event
    reason: FinishReason | None = None
    turn: Turn = field(default_factory=Turn)

    async def events(self) -> AsyncGenerator[ResponseEvent, None]:
        """Yield an answer's events; raises a `ServiceError`."""
        self.model = self.calls.find(self.request.model, "chat").manifest.name
        with _naming(self.request):
            async with aclosing(self.calls.events(self.request.task_request(), "chat")) as pieces:
                async for piece in pieces:
                    if isinstance(piece, GenerateEvent):
                        for event in await self._piece(piece):
                            yield event
                    elif isinstance(piece, UsageEvent):
                        yield self._end(piece.usage)

    def told(self, error: ServiceError) -> ErrorEvent:
        """Return the event that ends a stream in which something fails, also in the form in which others have it."""
        problem = {"message": error.message, "param": error.param, "code": error.code}
        self.number += 1
        return ErrorEvent(sequence_number=self.number - 1, **problem, error=observed().error_form.body(error)["error"])

    async def _piece(self, event: GenerateEvent) -> list[ResponseEvent]:
        """Return the events of one piece; the first one begins the answer."""
        events = [] if self.number else [self._whole("created"), self._whole("in_progress")]
        if event.reasoning:
            events += self._thought(event.reasoning)
        if event.text or event.logprobs:
            events += self._said(event.text, await logprobs_of(event.logprobs or [], self.turn))
        for piece in event.tool_calls or []:
            events += self._called(piece)
        if event.finish_reason is not None:
            self.reason = event.finish_reason
            if not self.items:
                events += self._said("", [])
            events += self._close(_status(self.reason))
        return events

    def _end(self, usage: Usage) -> ResponseEvent:
        """Return the last event, with the whole answer."""
        assert self.reason is not None, "bug: the last piece has a reason"
        whole = _response(self.request, self.model, self.created_at, self.items, self.reason, usage)
        return self._event(f"response.{whole.status}", response=whole)

    def _thought(self, text: str) -> Iterator[ResponseEvent]:
        if not self._is_at(ReasoningItem):
            opened = ReasoningItem(id=_id("rs", len(self.items)), content=[], status="in_progress")
            yield from self._open(opened)
            yield self._of_part("response.content_part.added", part=ReasoningText())
        self.texts.append(text)
        yield self._of_part("response.reasoning_text.delta", delta=text)

    def _said(self, text: str, logprobs: list[ScoredToken]) -> Iterator[ResponseEvent]:
        if not self._is_at(MessageItem):
            opened = MessageItem(id=_id("msg", len(self.items)), content=[], status="in_progress")
            yield from self._open(opened)
            yield self._of_part("response.content_part.added", part=OutputText())
        self.texts.append(text)
        self.logprobs += logprobs
        yield self._of_part("response.output_text.delta", delta=text, logprobs=logprobs)

    def _called(self, piece: ToolCallPiece) -> Iterator[ResponseEvent]:
        if piece.name is not None:
            place, called = _id("fc", len(self.items)), call_id(self.called)
            self.called += 1
            opened = CallItem(id=place, call_id=called, name=piece.name, arguments="", status="in_progress")
            yield from self._open(opened)
        if piece.arguments:
            self.texts.append(piece.arguments)
            yield self._of_item("response.function_call_arguments.delta", delta=piece.arguments)

    def _is_at(self, kind: type[Item]) -> bool:
        return self.is_open and isinstance(self.items[-1], kind)

    def _open(self, item: Item) -> Iterator[ResponseEvent]:
        yield from self._close("completed")
        self.items.append(item)
        self.is_open, self.texts, self.logprobs = True, [], []
        yield self._event("response.output_item.added", output_index=len(self.items) - 1, item=item)

    def _close(self, status: Literal["completed", "incomplete"]) -> Iterator[ResponseEvent]:
        """End the open item, if there is one; it takes the place of what it was when it was opened."""
        if not self.is_open:
            return
        opened, text = self.items[-1], "".join(self.texts)
        part: OutputText | ReasoningText | None = None
        match opened:
            case ReasoningItem():
                part = ReasoningText(text=text)
                yield self._of_part("response.reasoning_text.done", text=text)
            case MessageItem():
                part = OutputText.model_construct(text=text, logprobs=self.logprobs)
                yield self._of_part("response.output_text.done", text=text, logprobs=self.logprobs)
            case CallItem():
                yield self._of_item("response.function_call_arguments.done", arguments=text)
        if part is not None:
            yield self._of_part("response.content_part.done", part=part)
        ended = {"arguments": text} if part is None else {"content": [part]}
        self.items[-1] = opened.model_copy(update={**ended, "status": status})
        self.is_open = False
        yield self._event("response.output_item.done", output_index=len(self.items) - 1, item=self.items[-1])

    def _of_part(self, kind: str, **fields: Any) -> ResponseEvent:
        return self._of_item(kind, content_index=0, **fields)

    def _of_item(self, kind: str, **fields: Any) -> ResponseEvent:
        return self._event(kind, item_id=self.items[-1].id, output_index=len(self.items) - 1, **fields)

    def _whole(self, kind: str) -> ResponseEvent:
        return self._event(f"response.{kind}", response=_response(self.request, self.model, self.created_at, []))

    def _event(self, kind: str, **fields: Any) -> ResponseEvent:
        self.number += 1
        return ResponseEvent.model_construct(type=kind, sequence_number=self.number - 1, **fields)
