from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import weakref

import pytest

from service.engine import worker
from service.engine.priority import COMPUTES, YIELDS
from service.engine.worker import Worker


class Resting:
    """A worker that runs nothing of its own, and counts its rests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        monkeypatch.setattr(worker, "REST_S", 0.02)
        self.rests, self.error = 0, error
        self.work_is_over = asyncio.Event()
        self.worker = Worker("test", self._work, self._rest)

    async def _work(self) -> None:
        await self.work_is_over.wait()

    async def until(self, rests: int) -> None:
        """Wait until it has rested so often, and see that it does not rest again."""
        async with asyncio.timeout(10):
            while self.rests < rests:  # noqa: ASYNC110  # a thread rests
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert self.rests == rests

    def _rest(self) -> None:
        self.rests += 1
        if self.error:
            raise self.error


async def test_an_idle_worker_rests_once_until_there_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = Resting(monkeypatch)
    await asyncio.sleep(0.2)
    assert resting.rests == 0  # as it has not worked yet
    for rests in (1, 2):
        assert await resting.worker.run(len, "abc") == 3
        await resting.until(rests)

    await resting.worker.close()


async def test_it_does_not_rest_shortly_after_its_other_thread_has_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = Resting(monkeypatch)
    monkeypatch.setattr(worker, "REST_S", 0.4)
    assert await resting.worker.run(len, "abc", yields=True) == 3
    await asyncio.sleep(0.3)
    assert await resting.worker.run(len, "abc") == 3
    await asyncio.sleep(0.25)  # the first thread has had nothing to do for longer than that
    assert resting.rests == 0
    await resting.until(1)

    await resting.worker.close()


async def test_a_thread_that_waits_keeps_nothing_of_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    resting, texts = Resting(monkeypatch), {"a"}
    gone = weakref.ref(texts)
    assert await resting.worker.run(len, texts) == 1
    del texts

    await resting.until(1)
    assert gone() is None
    await resting.worker.close()


async def test_a_worker_does_not_rest_while_its_loop_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = Resting(monkeypatch)
    resting.worker.wake()
    assert await resting.worker.run(len, "abc") == 3
    await asyncio.sleep(0.2)
    assert resting.rests == 0
    resting.work_is_over.set()
    await resting.until(1)
    await resting.worker.close()


async def test_a_closed_worker_is_no_healthy_one() -> None:
    async def nothing() -> None:
        pass

    worker = Worker("closed", nothing, lambda: None)
    worker.wake()
    await worker.close()

    assert not worker.is_progressing(60)


async def test_a_broken_worker_does_not_begin_again() -> None:
    begun = 0

    async def begin() -> None:
        nonlocal begun
        begun += 1

    worker = Worker("broken", begin, lambda: None)
    worker.is_broken = True
    worker.wake()
    await asyncio.sleep(0)
    await worker.close()

    assert begun == 0


async def test_how_long_there_has_been_no_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = Resting(monkeypatch)
    idle = resting.worker.stalled_s()
    resting.worker.wake()
    await asyncio.sleep(0.5)
    waiting = resting.worker.stalled_s()
    await resting.worker.run(len, "abc")
    behind_a_step = resting.worker.stalled_s()
    resting.work_is_over.set()
    await resting.worker.close()

    assert idle == 0 and waiting >= 0.49 > behind_a_step
    assert resting.worker.stalled_s() == 0


async def test_a_rest_that_fails_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = Resting(monkeypatch, MemoryError())
    assert await resting.worker.run(len, "abc") == 3
    await resting.until(1)

    assert await resting.worker.run(len, "abc") == 3
    await resting.worker.close()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux")
async def test_what_may_wait_runs_in_a_thread_that_yields_and_never_beside_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resting = Resting(monkeypatch)
    running: list[int] = []

    def niceness(_: None) -> int:
        running.append(threading.get_native_id())
        time.sleep(0.02)
        assert len(running) == 1
        return os.getpriority(os.PRIO_PROCESS, running.pop())

    own = resting.worker.run(niceness, None)
    yielding = resting.worker.run(niceness, None, yields=True)
    own_niceness, its_niceness = await asyncio.gather(own, yielding)
    await resting.until(1)

    of_the_loop = os.getpriority(os.PRIO_PROCESS, 0)
    assert [own_niceness, its_niceness] == [min(19, of_the_loop + more) for more in (COMPUTES, YIELDS)]
    await resting.worker.close()


async def test_whatever_a_call_raises_is_told_and_the_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """As libraries written in Rust raise it."""

    def panic(_: None) -> None:
        raise Panic("lost")

    resting = Resting(monkeypatch)
    with pytest.raises(RuntimeError, match="Panic"):
        await asyncio.wait_for(resting.worker.run(panic, None), 10)

    assert await resting.worker.run(len, "abc") == 3
    await resting.worker.close()


async def test_what_comes_first_has_begun_before_the_loop_does_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BEGIN_S", 60.0)
    resting, waiting = Resting(monkeypatch), []
    asyncio.get_running_loop().call_soon(lambda: waiting.append(resting.worker._thread.calls.qsize()))

    await resting.worker.run(len, "abc", first=True)

    assert waiting == [0]
    await resting.worker.close()


async def test_a_loop_does_not_stand_still_for_a_thread_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BEGIN_S", 0.01)
    resting, goes_on = Resting(monkeypatch), threading.Event()
    busy = asyncio.create_task(resting.worker.run(lambda _: goes_on.wait(60), None))
    await asyncio.sleep(0)
    behind = asyncio.create_task(resting.worker.run(len, "abc", first=True))
    await asyncio.sleep(0.05)
    goes_on.set()

    assert await behind == 3
    assert await busy
    await resting.worker.close()


def test_a_thread_outlives_the_event_loop_that_asked_it(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    may_end, worker = threading.Event(), Worker("test", _no_work, lambda: None)

    async def ask() -> None:
        asking = asyncio.create_task(worker.run(lambda _: may_end.wait(10), None))
        await asyncio.sleep(0)
        asking.cancel()

    asyncio.run(ask())
    may_end.set()
    assert asyncio.run(asyncio.wait_for(worker.run(lambda number: number + 1, 1), 10)) == 2
    asyncio.run(worker.close())
    assert not errors


async def _no_work() -> None:
    """Be a loop without work."""
