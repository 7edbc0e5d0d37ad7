"""How large bodies may be, and how much of them may be here at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.api.bodies import BODIES_UNDER_WAY, LARGE_BODIES, LARGE_BODY, BodyLimits, LimitBody
from service.api.observing import Observed
from service.errors import ServerOverloaded
from service.tasks.task import ANONYMOUS
from tests.service.api.conftest import OpenClient, limits


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_body_too_large_is_413(open_client: OpenClient, is_announced: bool) -> None:
    async def chunks() -> Any:
        for _ in range(20):
            yield b"x" * 100

    async with open_client("stories", settings=limits(max_body_bytes=1000)) as client:
        response = await client.post("/generate", content=b"x" * 2000 if is_announced else chunks())

    assert response.status_code == 413
    assert "1000 bytes" in response.json()["error"]["message"]


async def test_bodies_that_are_sent_slowly_do_not_fill_the_memory() -> None:
    bodies, stays_open = BodyLimits(100, timeout_s=9), asyncio.Event()

    async def slowly() -> AsyncIterator[Message]:
        yield {"type": "http.request", "body": b"{" * 100, "more_body": True}
        await stays_open.wait()
        yield {"type": "http.request", "body": b"", "more_body": False}

    async def read() -> bytes:
        return await bodies.read({"type": "http", "headers": []}, slowly().__anext__)

    reading = [asyncio.create_task(read()) for _ in range(BODIES_UNDER_WAY)]
    await asyncio.sleep(0)
    with pytest.raises(ServerOverloaded, match="too many bodies"):
        await read()
    whole = {"type": "http.request", "body": b"{}", "more_body": False}
    assert await bodies.read({"type": "http", "headers": []}, AsyncMock(return_value=whole)) == b"{}"
    for each in reading:
        each.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    assert bodies.under_way == 0


async def test_large_bodies_count_until_they_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    asks: ContextVar[str] = ContextVar("asks")
    monkeypatch.setattr("service.api.bodies.observed", lambda: Observed(client=asks.get()))
    limits, answering, stays_open = BodyLimits(LARGE_BODY + 1, timeout_s=9), 0, asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal answering
        answering += 1
        await stays_open.wait()

    async def ask(client: str, size: int) -> list[Message]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b" " * size, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        asks.set(client)
        await LimitBody(app, limits)({"type": "http", "headers": []}, receive, send)
        return sent

    half = LARGE_BODIES // 2
    asking = [asyncio.create_task(ask("a", LARGE_BODY + 1)) for _ in range(half)]
    small = asyncio.create_task(ask("a", LARGE_BODY))
    await asyncio.sleep(0.1)
    asking += [asyncio.create_task(ask("b", LARGE_BODY + 1)) for _ in range(half)]
    refused = [await asyncio.create_task(ask("a", LARGE_BODY + 1))]
    await asyncio.sleep(0.1)
    refused.append(await asyncio.create_task(ask("c", LARGE_BODY + 1)))
    assert answering == LARGE_BODIES + 1
    for start, body in refused:
        assert start["status"] == 429 and b"too many large bodies" in body["body"]

    stays_open.set()
    await asyncio.gather(*asking, small)
    assert not limits.large

    stays_open.clear()  # where nobody has a key there is nobody to keep room for
    asking = [asyncio.create_task(ask(ANONYMOUS, LARGE_BODY + 1)) for _ in range(LARGE_BODIES)]
    await asyncio.sleep(0.1)
    stays_open.set()
    answers = await asyncio.gather(*asking)
    assert not any(answers)


@pytest.mark.parametrize(("announced", "status"), [("²", 400), ("-1", 400), ("9" * 5000, 413), ("9" * 20, 413)])
async def test_an_odd_length_is_no_failure_of_ours(open_client: OpenClient, announced: str, status: int) -> None:
    async with open_client("stories") as client:
        headers = {b"Content-Length": announced.encode("latin-1"), b"Content-Type": b"application/json"}
        response = await client.post("/generate", content=b"not JSON", headers=headers)

    assert response.status_code == status


async def test_a_client_that_leaves_before_its_request_is_whole_gets_no_answer() -> None:
    async def left() -> Message:
        return {"type": "http.disconnect"}

    async def unexpected(*_: object) -> None:
        raise AssertionError("nobody is there")

    await LimitBody(unexpected, BodyLimits(100, timeout_s=1))({"type": "http", "headers": []}, left, unexpected)
