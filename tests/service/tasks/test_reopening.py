"""Several models in one process: what becomes of one that fails, and of the others."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import onnxruntime
import pytest

from model.package import PackageError
from service.api.app import create_app
from service.engine.observer import Load
from service.engine.session import Session
from service.errors import NotReady
from service.metrics import Metrics
from service.models_file import ModelSettings
from service.schemas import AnyRequest, ClassifyRequest, GenerateRequest, GenerateResponse, Response
from service.settings import Limits, Settings
from service.tasks.loading import load_task
from service.tasks.reopening import HANGS_S, MAX_FAILED, ReopenedTask, must_be_replaced, reopen_failed
from tests.conftest import TinyPackage
from tests.service.api.conftest import series
from tests.service.clock import Clock
from tests.service.garbage import frozen

TEXT = ClassifyRequest(input="The film was good.")
STORY = GenerateRequest(prompt="Once upon a time", max_tokens=40, min_tokens=40, temperature=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def tasks(sentiment: TinyPackage, stories: TinyPackage, clock: Clock) -> AsyncIterator[list[ReopenedTask]]:
    """A classifier, of which a step that takes longer than a second counts as stuck, and a generator with more time."""
    there = [
        ReopenedTask(
            partial(load_task, ModelSettings(package=package.folder, threads=1), Limits(stuck_after_s=stuck_s)), clock
        )
        for package, stuck_s in ((sentiment, 1.0), (stories, 60.0))
    ]
    yield there
    for task in there:
        await task.close()


def runtimes_of(part: object) -> list[weakref.ref[onnxruntime.InferenceSession]]:
    """Return ONNX Runtime's sessions that a part of a model has, in whatever parts of its own."""
    if isinstance(part, Session):
        return [weakref.ref(part._session)]
    own = vars(part).values() if type(part).__module__.startswith("service.") and hasattr(part, "__dict__") else ()
    return [runtime for each in own for runtime in runtimes_of(each)]


def break_loop(task: ReopenedTask) -> None:
    """Let the loop fail at its next step, as by a bug outside the graphs."""
    engine: Any = task._task._engine
    engine.scheduler.schedule = lambda: 1 / 0


def block(task: ReopenedTask) -> threading.Event:
    """Let the graph not return before this is set."""
    batcher: Any = task._task._engine
    may_return, compute = threading.Event(), batcher.compute

    def blocked(batch: Any) -> Any:
        may_return.wait()
        return compute(batch)

    batcher.compute = blocked
    return may_return


async def stopped(task: ReopenedTask) -> None:
    """Wait until a task counts as one that makes no progress."""
    async with asyncio.timeout(10):
        while task.is_progressing:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)


async def stuck(task: ReopenedTask) -> Callable[[], Awaitable[Response | BaseException]]:
    """Let a task's graph not return; what ends that returns the answer, or how the request failed."""
    may_return, answer = block(task), asyncio.create_task(task.predict(TEXT))
    await stopped(task)

    async def end() -> Response | BaseException:
        may_return.set()
        (ended,) = await asyncio.gather(answer, return_exceptions=True)
        return ended

    return end


def is_to_be_replaced(tasks: list[Any]) -> bool:
    """Look after a process's models as its check does."""
    reopen_failed(tasks)
    return must_be_replaced(tasks)


async def opened(task: ReopenedTask) -> None:
    assert task._opening is not None
    await task._opening


async def closed(task: ReopenedTask) -> None:
    """Wait until nothing is left of those before, which would count as stuck."""
    await asyncio.gather(*task._closing)


async def test_a_model_that_failed_is_opened_anew_while_others_go_on(tasks: list[ReopenedTask]) -> None:
    classifier, generator = tasks
    whole = await generator.predict(STORY)
    break_loop(generator)
    others = [asyncio.create_task(classifier.predict(TEXT)) for _ in range(20)]
    with pytest.raises(NotReady):
        await generator.predict(STORY)
    with pytest.raises(NotReady, match="opened anew"):
        await generator.predict(STORY)
    assert not is_to_be_replaced(tasks)
    await opened(generator)

    assert await generator.predict(STORY) == whole
    assert len({repr(answer) for answer in await asyncio.gather(*others)}) == 1


async def test_a_stream_goes_on_when_another_model_of_its_process_fails(tasks: list[ReopenedTask]) -> None:
    classifier, generator = tasks
    whole = await generator.predict(STORY)
    may_return, texts = block(classifier), []
    async for event in generator.stream(STORY):
        texts.append(getattr(event, "text", ""))
        if len(texts) == 3:
            stuck = asyncio.create_task(classifier.predict(TEXT))
            await stopped(classifier)
            assert not is_to_be_replaced(tasks)
            await opened(classifier)
            assert len((await classifier.predict(TEXT)).results) == 1  # type: ignore[attr-defined]  # the task answers in kind
    with pytest.raises(NotReady):
        await stuck  # ended as its model was opened anew
    may_return.set()

    assert isinstance(whole, GenerateResponse)
    assert "".join(texts) == whole.choices[0].text


async def test_requests_of_a_stuck_encoder_end_when_it_is_opened_anew(tasks: list[ReopenedTask]) -> None:
    classifier = tasks[0]
    may_return = block(classifier)
    asked = [asyncio.create_task(classifier.predict(TEXT)) for _ in range(3)]  # one runs, and two wait
    await stopped(classifier)
    assert not is_to_be_replaced(tasks)
    ended = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
    assert not may_return.is_set()
    await opened(classifier)
    may_return.set()

    assert [type(error) for error in ended] == [NotReady] * 3


async def test_a_model_that_was_opened_anew_leaves_nothing_of_the_one_before(tasks: list[ReopenedTask]) -> None:
    requests: list[AnyRequest] = [TEXT, STORY]
    for task, request in zip(tasks, requests, strict=True):
        engine: Any = task._task._engine
        await task.predict(request)
        with frozen():
            runtimes = runtimes_of(engine)
            assert runtimes
            gone = weakref.ref(engine), weakref.ref(task._task._tokenizer)
            del engine
            task.reopen()
            await opened(task)
            await asyncio.gather(*task._closing)
            await asyncio.sleep(0)
            assert not [part for part in (*gone, *runtimes) if part() is not None]


async def test_an_encoder_that_could_not_be_opened_anew_is_tried_again_and_closed_without_an_error(
    tasks: list[ReopenedTask], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, load = tasks[0], tasks[0]._load
    monkeypatch.setattr(classifier, "_load", lambda: 1 / 0)
    classifier.reopen()
    await opened(classifier)
    await classifier.close()
    clock.now += 60
    monkeypatch.setattr(classifier, "_load", load)
    with pytest.raises(NotReady):
        await classifier.predict(TEXT)
    await opened(classifier)

    assert isinstance(await classifier.predict(TEXT), Response)


async def test_the_numbers_of_a_model_that_was_opened_anew_are_the_new_ones_alone(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.metrics.STATE_S", 0.01)
    metrics = Metrics()
    load = partial(load_task, ModelSettings(package=stories.folder, threads=1), Limits(), metrics)
    task = ReopenedTask(load)
    old: Any = task._task._engine
    task.reopen()
    await opened(task)
    monkeypatch.setattr(old, "load", lambda: Load(running=7, waiting=7, queued_tokens=7, slots_used=7))
    seen = set()
    for _ in range(10):
        await asyncio.sleep(0.01)
        seen.add(series(metrics.exposition().decode())['sequences_running{model="stories"}'])
    await task.close()

    assert seen == {0}


async def test_who_fails_again_is_not_opened_again_at_once(tasks: list[ReopenedTask], clock: Clock) -> None:
    generator = tasks[1]
    break_loop(generator)
    with pytest.raises(NotReady):
        await generator.predict(STORY)
    generator.reopen()
    await opened(generator)
    break_loop(generator)
    with pytest.raises(NotReady):
        await generator.predict(STORY)
    first = generator._opening
    with pytest.raises(NotReady):
        await generator.predict(STORY)
    assert generator._opening is first
    clock.now += 60
    with pytest.raises(NotReady):
        await generator.predict(STORY)
    await opened(generator)

    assert generator.is_progressing


async def test_a_model_stuck_too_often_waits_for_another_process_until_no_other_is_at_work(
    tasks: list[ReopenedTask], clock: Clock
) -> None:
    classifier, generator = tasks
    ends = []
    for _ in range(3):
        ends.append(await stuck(classifier))
        story = asyncio.create_task(generator.predict(STORY))
        await asyncio.sleep(0)
        assert not is_to_be_replaced(tasks)
        await story
        if not classifier.is_lost:
            await opened(classifier)
            clock.now += 60

    assert classifier.is_lost
    assert is_to_be_replaced(tasks)
    for end in ends:
        await end()


async def test_a_model_that_cannot_be_opened_anew_waits_for_another_process_and_is_given_up_for_good(
    tasks: list[ReopenedTask], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, generator = tasks
    monkeypatch.setattr(generator, "_load", lambda: 1 / 0)
    break_loop(generator)
    with pytest.raises(NotReady):
        await generator.predict(STORY)
    for _ in range(MAX_FAILED):
        assert not is_to_be_replaced(tasks)
        await opened(generator)
        await closed(generator)
        clock.now += 60

    def replaced(*, is_busy: bool) -> bool:
        monkeypatch.setattr(ReopenedTask, "is_busy", property(lambda task: is_busy and task is classifier))
        return is_to_be_replaced(tasks)

    assert generator.is_lost and not replaced(is_busy=True)
    await opened(generator)  # it is tried on
    await closed(generator)
    assert replaced(is_busy=False) and replaced(is_busy=True)  # or Serve, which must hear it three times, would never
    monkeypatch.undo()
    await opened(generator)
    clock.now += 60
    generator.reopen()
    await opened(generator)
    assert generator.is_progressing and not is_to_be_replaced(tasks)


async def test_a_model_that_is_stuck_counts_once_however_often_it_cannot_be_opened(
    tasks: list[ReopenedTask], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, _ = tasks
    end = await stuck(classifier)
    with monkeypatch.context() as short_of_memory:
        short_of_memory.setattr(classifier, "_load", lambda: 1 / 0)
        for _ in range(2):
            classifier.reopen()
            await opened(classifier)
            clock.now += 60

    assert len(classifier._closing) == 1 and not classifier.is_lost
    classifier.reopen()
    await opened(classifier)
    assert classifier.is_progressing
    await end()


async def test_a_package_that_is_broken_takes_no_process_with_it(
    tasks: list[ReopenedTask], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise PackageError("stories: encoder.onnx is not there")

    monkeypatch.setattr(tasks[1], "_load", broken)
    break_loop(tasks[1])
    with pytest.raises(NotReady):
        await tasks[1].predict(STORY)
    for _ in range(MAX_FAILED + 1):
        assert not is_to_be_replaced(tasks)
        await opened(tasks[1])
        await closed(tasks[1])
        clock.now += 60


async def test_a_model_that_is_being_opened_for_the_last_time_is_not_lost(
    tasks: list[ReopenedTask], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, may_open, load = tasks[0], threading.Event(), tasks[0]._load
    ends = [await stuck(classifier)]
    assert not is_to_be_replaced(tasks)
    await opened(classifier)
    clock.now += 60
    monkeypatch.setattr(classifier, "_load", lambda: (may_open.wait(10), load())[1])
    ends.append(await stuck(classifier))
    for _ in range(2):
        assert not is_to_be_replaced(tasks)
        assert not classifier.is_lost
        await asyncio.sleep(0.01)  # until the opening has begun
    may_open.set()
    await opened(classifier)

    assert classifier.is_progressing
    for end in ends:
        await end()


async def test_a_model_whose_opening_hangs_waits_for_another_process(
    tasks: list[ReopenedTask], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, may_open, load = tasks[0], threading.Event(), tasks[0]._load
    monkeypatch.setattr(classifier, "_load", lambda: (may_open.wait(10), load())[1])
    end = await stuck(classifier)
    assert not is_to_be_replaced(tasks) and not classifier.is_lost
    clock.now += HANGS_S - 1
    assert not is_to_be_replaced(tasks)
    clock.now += 1

    assert is_to_be_replaced(tasks) and classifier.is_lost
    await asyncio.wait_for(classifier.close(), 5)
    may_open.set()
    await opened(classifier)
    await end()


async def test_a_process_whose_only_model_fails_is_replaced(sentiment: TinyPackage) -> None:
    task = load_task(ModelSettings(package=sentiment.folder, threads=1), Limits())
    assert not is_to_be_replaced([task])
    engine: Any = task._engine
    engine.is_progressing = lambda _patience_s: False

    assert is_to_be_replaced([task])
    await task.close()


async def test_who_may_take_requests_is_told_of_each_model(tasks: list[ReopenedTask]) -> None:
    transport = httpx.ASGITransport(create_app(tasks, Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        engine: Any = tasks[1]._task._engine
        engine._worker.is_broken = True
        status = {path: (await client.get(path)).status_code for path in PATHS}
        told = (await client.get("/ready")).json()["error"]["message"]

    assert status == PATHS
    assert told == "not making progress: stories"


PATHS = {
    "/health": 200,
    "/ready": 503,
    "/models/sentiment/ready": 200,
    "/models/stories/health": 503,
    "/models/stories/ready": 503,
}
