"""How large bodies may be, and how much of them may be here at once."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.api.bodies import BODIES_UNDER_WAY, LARGE, PART_OF_MEMORY, PLAIN, BodyLimits, LimitBody, memory_of
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


@pytest.mark.parametrize(
    "value",
    [
        "x" * 50_000,
        "é" * 50_000,
        "x" * 50_000 + "中",
        "x" * 50_000 + "\U0001f600",
        [[]] * 5_000,
        [{"a": each} for each in range(5_000)],
        [{f"a{each}": 1} for each in range(5_000)],
        [str(each) for each in range(5_000)],
        list(range(5_000)),
        {str(each): each / 7 for each in range(5_000)},
        [{"role": "user", "content": f"said {each}"} for each in range(5_000)],
    ],
    ids=lambda value: str(value)[-9:],
)
@pytest.mark.parametrize("is_escaped", [True, False])
def test_a_body_counts_as_what_it_takes_in_memory(value: object, is_escaped: bool) -> None:
    body = json.dumps(value, ensure_ascii=is_escaped, separators=(",", ":")).encode()

    tracemalloc.start()
    parsed = json.loads(body)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert parsed == value
    assert len(body) + taken <= memory_of(body) + 5_000  # which the interpreter keeps for the next one


class Asking:
    """Requests of several clients to an application that answers when it is told to, and readers who wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int, answer: bytes = b"") -> None:
        self._client: ContextVar[str] = ContextVar("client")
        monkeypatch.setattr("service.api.bodies.observed", lambda: Observed(client=self._client.get()))
        self.limits = BodyLimits(2**21, timeout_s=9, memory=room * PART_OF_MEMORY)
        self.answers, self.reads, self._answer = asyncio.Event(), asyncio.Event(), answer
        self._limit_body = LimitBody(self._app, self.limits)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await self.answers.wait()
        await send({"type": "http.response.body", "body": self._answer})

    def ask(self, client: str, body: bytes, method: str = "POST") -> asyncio.Task[bytes]:
        self._client.set(client)
        return asyncio.create_task(self._ask(body, method))

    async def _ask(self, body: bytes, method: str) -> bytes:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)
            if len(message.get("body", b"")) > LARGE:
                await self.reads.wait()

        receive = AsyncMock(return_value={"type": "http.request", "body": body})
        await self._limit_body({"type": "http", "method": method, "headers": []}, receive, send)
        status: int = sent[0].get("status", 200)
        return b"%d %b" % (status, sent[-1]["body"])


async def test_large_bodies_hold_no_more_memory_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b" " * LARGE
    asking = Asking(monkeypatch, room=4 * PLAIN * len(body))

    first = [asking.ask("a", body) for _ in range(3)]
    small = asking.ask("a", b" " * (LARGE // PLAIN))
    second = [asking.ask("b", body) for _ in range(3)]
    await asyncio.sleep(0.01)
    asking.answers.set()

    answers = [(await each)[:3] for each in (*first, *second)]
    assert answers == [b"200", b"200", b"429", b"200", b"200", b"429"]  # a key may have half
    assert (await small).startswith(b"200")
    assert not asking.limits.bodies.by_client


async def test_without_keys_there_is_nobody_to_keep_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b" " * LARGE
    asking = Asking(monkeypatch, room=4 * PLAIN * len(body))

    asked = [asking.ask(ANONYMOUS, body) for _ in range(5)]
    await asyncio.sleep(0.01)
    asking.answers.set()

    answers = [await each for each in asked]
    assert [answer[:3] for answer in answers] == [b"200"] * 4 + [b"429"]
    assert b"too many large bodies" in answers[-1]


async def test_a_body_that_comes_alone_has_room_in_the_smallest_container(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(monkeypatch, room=1)
    asking.answers.set()

    assert await asking.ask("a", b" " * 2**21) == b"200 "


async def test_a_small_container_has_room_for_less(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.app.memory_limit", lambda: PART_OF_MEMORY * 2 * LARGE)
    body = {"model": "stories", "prompt": "Once", "max_tokens": 1, "user": "x" * LARGE}

    async with open_client("stories") as client:
        answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(4)))

    assert sorted(answer.status_code for answer in answers) == [200, 429, 429, 429]


async def test_nothing_more_is_computed_for_who_reads_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = b" " * (LARGE + 1)
    asking = Asking(monkeypatch, room=4 * len(answer), answer=answer)
    asking.answers.set()

    unread = [asking.ask("a", b"{}") for _ in range(2)]
    await asyncio.sleep(0.01)
    refused = await asking.ask("a", b"{}")
    other = asking.ask("b", b"{}")
    probe = asking.ask("a", b"", "GET")
    await asyncio.sleep(0.01)
    asking.reads.set()

    assert refused.startswith(b"429") and b"too many answers wait" in refused
    assert await asyncio.gather(*unread, other, probe) == [b"200 " + answer] * 4
    assert not asking.limits.answers.by_client


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

    scope = {"type": "http", "method": "POST", "headers": []}
    await LimitBody(unexpected, BodyLimits(100, timeout_s=1))(scope, left, unexpected)


def test_what_is_within_texts_or_pictures_are_no_values() -> None:
    text = json.dumps({"input": "," * 2**21}).encode()

    assert memory_of(text) < 16 * 2**20
    assert memory_of(b"GIF89a" + b",[" * 2**20) == PLAIN * (6 + 2**21)
