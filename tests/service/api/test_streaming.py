from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.types import Message

from service.api.streaming import NamedEvent, event_stream
from service.errors import InvalidRequest, ServiceError
from service.schemas import AnyEvent, GenerateEvent

SOON = 0.02


class Events:
    """Events that come when the test says, and whether they were closed."""

    def __init__(self, *delays: float, error: Exception | None = None) -> None:
        self._delays, self._error = delays, error
        self.is_closed = False

    async def __aiter__(self) -> AsyncGenerator[AnyEvent, None]:
        try:
            for delay in self._delays:
                await asyncio.sleep(delay)
                yield GenerateEvent(index=0, text="x")
            if self._error is not None:
                raise self._error
        finally:
            self.is_closed = True


async def read(response: Any) -> list[str]:
    parts: list[str] = []

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # never

    async def send(message: Message) -> None:
        parts.append(message.get("body", b"").decode())

    await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    return [part for part in parts if part]


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
async def test_an_event_is_a_line_to_clients_that_split_at_other_signs_too(sign: str) -> None:
    async def events() -> AsyncGenerator[AnyEvent, None]:
        yield GenerateEvent(index=0, text=f"a{sign}b")

    line, *rest = "".join(await read(await event_stream(events(), SOON))).splitlines()

    assert json.loads(line.removeprefix("data: "))["text"] == f"a{sign}b" and rest == ["", "data: [DONE]", ""]


class LongEvent(NamedEvent):
    type: str = "long"
    texts: list[str]


@pytest.mark.parametrize("count", [2, 2000])
async def test_an_event_has_its_type_as_its_name_however_long_it_is(count: int) -> None:
    async def events() -> AsyncGenerator[LongEvent, None]:
        yield LongEvent(texts=["a\u2028b"] * count)

    name, data, *rest = "".join(await read(await event_stream(events(), SOON, last=""))).splitlines()

    assert name == "event: long" and rest == [""]
    assert json.loads(data.removeprefix("data: ")) == {"type": "long", "texts": ["a\u2028b"] * count}


async def test_an_error_is_told_as_its_protocol_tells_it() -> None:
    def told(error: ServiceError) -> NamedEvent:
        return LongEvent(type="error", texts=[error.message])

    events = Events(0, error=InvalidRequest("no", "x"))
    parts = await read(await event_stream(aiter(events), SOON, told=told))

    assert parts[-1] == 'event: error\ndata: {"type":"error","texts":["no"]}\n\n'


async def test_comments_go_out_while_a_stream_waits() -> None:
    events = Events(0, SOON * 25, 0)
    parts = await read(await event_stream(aiter(events), SOON))

    first, *comments, second, third, done = parts
    assert 1 <= len(comments) <= 25 and set(comments) == {": keep-alive\n\n"}
    assert first == second == third and first.startswith("data: {")
    assert done == "data: [DONE]\n\n"


async def test_a_busy_stream_has_no_comments() -> None:
    parts = await read(await event_stream(aiter(Events(*[SOON] * 40)), SOON * 25))

    assert len(parts) == 41  # in longer than a comment would wait


async def test_a_response_begins_with_a_comment_when_the_first_event_is_late() -> None:
    parts = await read(await event_stream(aiter(Events(SOON * 16)), SOON * 10))  # before another could be due

    assert parts[0] == ": keep-alive\n\n"
    assert parts[-1] == "data: [DONE]\n\n"


async def test_an_early_error_is_raised_and_a_late_one_is_an_event() -> None:
    with pytest.raises(InvalidRequest):
        await event_stream(aiter(Events(error=InvalidRequest("no"))), SOON)

    async def late() -> AsyncGenerator[AnyEvent, None]:
        await asyncio.sleep(SOON * 2)
        raise InvalidRequest("no")
        yield

    parts = await read(await event_stream(late(), SOON))
    assert parts[-1].startswith('event: error\ndata: {"error": {"code": "invalid_request"')


async def test_who_leaves_while_the_first_event_is_waited_for_closes_the_events() -> None:
    events = Events(100)
    waiting = asyncio.create_task(event_stream(aiter(events), 100))
    await asyncio.sleep(SOON)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert events.is_closed


@pytest.mark.parametrize("delay", [0, SOON * 2])
async def test_who_leaves_while_a_stream_waits_closes_the_events(delay: float) -> None:
    events = Events(delay, 100)
    reading = asyncio.create_task(read(await event_stream(aiter(events), SOON)))
    await asyncio.sleep(SOON * 3)
    reading.cancel()
    await asyncio.wait([reading])

    assert events.is_closed
