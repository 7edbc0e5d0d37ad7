from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.app import create_app
from service.api.deadline import PIECE, KeepDeadline, deadline
from service.metrics import Metrics
from service.models_file import ModelSettings
from service.settings import Limits, Settings
from service.tasks.loading import load_task
from service.tasks.task import LocalTask, Task
from tests.conftest import MakePackage

Ask = Callable[..., Awaitable[list[Message]]]


class Asking:
    """One request to an app over raw ASGI, whose client sends and takes as the test wants."""

    def __init__(self, task: Task, metrics: Metrics, limits: Limits) -> None:
        self.task, self._metrics = task, metrics
        self._app = create_app([task], Settings(limits=limits), metrics)
        self.sent: list[Message] = []
        self.takes = 1000  # messages, before it stops reading
        self.pause_s = 0.0  # before the last of the body

    async def __call__(self, path: str, *chunks: bytes) -> None:
        """Send these chunks of a body, and nothing more; None ends it."""
        messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks[:-1]]
        if chunks[-1]:
            messages.append({"type": "http.request", "body": chunks[-1], "more_body": False})

        async def receive() -> Message:
            if len(messages) == 1:
                await asyncio.sleep(self.pause_s)
            return messages.pop(0) if messages else await asyncio.get_running_loop().create_future()

        async def send(message: Message) -> None:
            if len(self.sent) >= self.takes:
                await asyncio.get_running_loop().create_future()
            self.sent.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
        await self._app({**scope, "asgi": {"spec_version": "2.3"}, "scheme": "http"}, receive, send)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    async def is_idle(self) -> bool:
        """Whether the engine works for nobody any more; after the running step at the latest."""
        for _ in range(1000):
            if (await self.task.health()).slots_used == 0:
                return True
            await asyncio.sleep(0.01)
        return False

    def count(self, name: str, **labels: str) -> float:
        return self._metrics._registry.get_sample_value(f"trifold_{name}", labels) or 0.0


@pytest.fixture
def asking(make_package: MakePackage) -> Any:
    @asynccontextmanager
    async def asking(**limits: float) -> AsyncIterator[Asking]:
        bounds, metrics = Limits.model_validate(limits), Metrics()
        task = load_task(ModelSettings(package=make_package("stories").folder, threads=1), bounds, metrics)
        try:
            yield Asking(task, metrics, bounds)
        finally:
            await task.close()

    return asking


async def sending(app: ASGIApp, take: Send, limits: Limits) -> None:
    """Let an app send to a reader within its deadline; it asks for nothing."""

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # it never returns

    scope = {"type": "http", "method": "POST", "path": "/generate", "headers": []}
    await KeepDeadline(app, limits)(scope, receive, take)


def body(**values: Any) -> bytes:
    return json.dumps({"prompt": "Once", "max_tokens": 120, "min_tokens": 119, **values}).encode()


async def test_a_body_that_does_not_come_is_408(asking: Any) -> None:
    async with asking(body_timeout_s=0.05) as ask:
        await ask("/generate", b'{"prompt"', b"")

    assert ask.status == 408
    assert json.loads(ask.text)["error"]["code"] == "request_timeout"
    assert (b"connection", b"close") in ask.sent[0]["headers"]


async def test_a_body_that_comes_in_time_is_answered(asking: Any) -> None:
    async with asking(body_timeout_s=5) as ask:
        whole = body(max_tokens=1, min_tokens=0)
        await ask("/generate", whole[:5], whole[5:])

    assert ask.status == 200


async def test_the_deadline_counts_from_the_head_of_the_request(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float | None] = []

    async def predict(*_: object) -> None:
        told.append(deadline())
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(LocalTask, "predict", predict)
    whole = body()
    async with asking(request_timeout_s=2) as ask:
        ask.pause_s = 1  # before the last of the body
        begun = asyncio.get_running_loop().time()
        await ask("/generate", whole[:5], whole[5:])

    assert told[0] is not None and told[0] < begun + 2 + 0.5

    assert ask.status == 504
    assert json.loads(ask.text)["error"]["code"] == "deadline_exceeded"


async def test_a_reader_who_stops_taking_a_stream_is_cut_and_its_slots_are_free(asking: Any) -> None:
    async with asking(stall_timeout_s=0.05) as ask:
        ask.takes = 2
        await asyncio.wait_for(ask("/generate", body(stream=True, n=200)), timeout=5)

        assert await ask.is_idle()
        assert ask.count("rejections_total", model="stories", reason="reader_stalled") == 1
        assert ask.count("requests_total", model="stories", task="generate", code="499") == 1


async def test_a_slow_reader_who_takes_every_piece_is_not_cut_while_comments_wait_for_it_too() -> None:
    """A piece is always sent before the last one is taken, so that at no moment none waits."""
    takes, taken = asyncio.Semaphore(0), list[Message]()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        sends: list[asyncio.Future[None]] = []
        for _ in range(30):
            sends.append(asyncio.ensure_future(send({"type": "http.response.body"})))
            await asyncio.sleep(0.05)
            if len(sends) > 1:
                takes.release()
        takes.release()
        await asyncio.gather(*sends)

    async def take(message: Message) -> None:
        await takes.acquire()
        taken.append(message)

    await sending(app, take, Limits(stall_timeout_s=1))

    assert len(taken) == 30


async def test_a_large_answer_is_over_when_its_reader_has_taken_it_and_is_the_same_in_pieces() -> None:
    taken, is_over, answer = list[Message](), False, bytes(range(256)) * 1000

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        nonlocal is_over
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer})
        is_over = True

    async def take(message: Message) -> None:
        assert not is_over
        taken.append(message)

    await sending(app, take, Limits())

    bodies = [message for message in taken if message["type"] == "http.response.body"]
    assert b"".join(message["body"] for message in bodies) == answer
    assert max(len(message["body"]) for message in bodies) <= PIECE
    assert [message.get("more_body", False) for message in bodies] == [True] * (len(bodies) - 1) + [False]
    assert bodies[-1]["body"] == b""


async def test_nothing_comes_between_the_pieces_of_a_large_event() -> None:
    taken = list[Message]()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        event = send({"type": "http.response.body", "body": b"x" * 10 * PIECE, "more_body": True})
        comment = send({"type": "http.response.body", "body": b": keep-alive", "more_body": True})
        await asyncio.gather(event, comment)

    async def take(message: Message) -> None:
        await asyncio.sleep(0)
        taken.append(message)

    await sending(app, take, Limits())

    assert b"".join(message["body"] for message in taken) == b"x" * 10 * PIECE + b": keep-alive"


async def test_a_reader_is_cut_at_the_deadline_however_long_it_may_stall(
    asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.deadline.LAST_WORDS_S", 0.01)
    async with asking(request_timeout_s=0.1, stall_timeout_s=100) as ask:
        ask.takes = 2
        await asyncio.wait_for(ask("/generate", body(stream=True, n=200)), timeout=5)

        assert await ask.is_idle()


async def test_a_reader_who_does_not_take_a_whole_answer_is_cut(asking: Any) -> None:
    async with asking(stall_timeout_s=0.05) as ask:
        ask.takes = 1
        await asyncio.wait_for(ask("/generate", body(max_tokens=1, min_tokens=0)), timeout=5)

    assert ask.count("rejections_total", model="stories", reason="reader_stalled") == 1


async def test_nothing_strikes_at_the_deadline_of_a_request_that_is_over(
    asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.deadline.LAST_WORDS_S", 0.0)
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    async with asking(request_timeout_s=1, stall_timeout_s=0.1) as ask:
        await ask("/generate", body(max_tokens=1, min_tokens=0))
        await asyncio.sleep(1.1)

    assert ask.status == 200 and failures == []
