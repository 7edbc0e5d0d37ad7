from __future__ import annotations

import asyncio
import threading

import pytest

from service.engine.admission import Admission, AdmissionLimits, Permit
from service.engine.errors import EngineClosed
from service.models_file import ModelSettings
from service.settings import Limits
from service.tasks.loading import load_task
from service.tasks.pool import SMALL, Pool
from tests.conftest import TinyPackage


def request(client: str = "") -> Permit:
    return Admission(AdmissionLimits()).admit(client, 1, 1)


async def test_small_work_is_done_at_once_and_large_work_in_the_thread() -> None:
    pool = Pool()
    small = await pool.run(request(), SMALL, threading.current_thread)
    large = await pool.run(request(), SMALL + 1, threading.current_thread)
    await pool.close()

    assert small is threading.current_thread() and large is not small


async def test_clients_take_turns() -> None:
    done: list[str] = []
    pool, gate = Pool(), threading.Event()
    blocking = asyncio.create_task(pool.run(request(), SMALL + 1, gate.wait))
    await asyncio.sleep(0)
    flood = [asyncio.create_task(pool.run(request("flood"), SMALL + 1, done.append, "flood")) for _ in range(5)]
    await asyncio.sleep(0)
    other = asyncio.create_task(pool.run(request("other"), SMALL + 1, done.append, "other"))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(blocking, other, *flood)
    await pool.close()

    assert done == ["flood", "other", "flood", "flood", "flood", "flood"]


async def test_who_leaves_while_waiting_or_working_passes_the_turn_on() -> None:
    pool, gate = Pool(), threading.Event()
    working, waiting, last = (asyncio.create_task(pool.run(request(), SMALL + 1, gate.wait)) for _ in range(3))
    await asyncio.sleep(0)
    waiting.cancel()
    working.cancel()
    gate.set()

    assert await asyncio.wait_for(last, 10)
    assert await asyncio.wait_for(pool.run(request(), SMALL + 1, lambda: "idle again"), 10)
    await pool.close()


async def test_who_leaves_when_the_turn_has_just_come_passes_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, gate = Pool(), threading.Event()
    working, leaving, last = (asyncio.create_task(pool.run(request(), SMALL + 1, gate.wait)) for _ in range(3))
    await asyncio.sleep(0)
    pass_on = pool._pass_on

    def passed_on_to_who_leaves() -> None:
        pass_on()
        monkeypatch.setattr(pool, "_pass_on", pass_on)
        leaving.cancel()  # the turn is its own, and it has not run yet

    monkeypatch.setattr(pool, "_pass_on", passed_on_to_who_leaves)
    gate.set()

    assert await asyncio.wait_for(working, 10) and await asyncio.wait_for(last, 10)
    assert leaving.cancelled()
    assert await asyncio.wait_for(pool.run(request(), SMALL + 1, lambda: "idle again"), 10)
    await pool.close()


async def test_what_fails_in_the_thread_fails_for_its_request_alone() -> None:
    pool = Pool()
    with pytest.raises(ZeroDivisionError):
        await pool.run(request(), SMALL + 1, lambda: 1 / 0)

    assert await pool.run(request(), SMALL + 1, lambda: 1) == 1
    await pool.close()


async def test_who_leaves_in_the_moment_of_the_turn_harms_nobody() -> None:
    pool, gate = Pool(), threading.Event()
    working, leaving, last = (asyncio.create_task(pool.run(request(), SMALL + 1, gate.wait)) for _ in range(3))
    await asyncio.sleep(0)
    working.add_done_callback(lambda _: leaving.cancel())
    leaving_turn = next(pool._waiting.in_turn()).turn
    leaving_turn.cancel()  # as its task's cancellation does, before the task itself has run
    gate.set()

    assert await asyncio.wait_for(working, 10) and await asyncio.wait_for(last, 10)
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await pool.close()


async def test_closing_ends_all_requests_and_lets_others_go_on_while_the_thread_works() -> None:
    pool, gate = Pool(), threading.Event()
    working, waiting = (asyncio.create_task(pool.run(request(), SMALL + 1, gate.wait)) for _ in range(2))
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(pool.close())
    for ended in (working, waiting):
        with pytest.raises(EngineClosed):
            await asyncio.wait_for(ended, 10)
    with pytest.raises(EngineClosed):
        await pool.run(request(), SMALL + 1, gate.wait)
    assert not closing.done()
    gate.set()

    await asyncio.wait_for(closing, 10)


async def test_a_model_whose_thread_is_stuck_at_a_piece_makes_no_progress(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = load_task(ModelSettings(package=stories.folder, threads=1), Limits())
    before = task.is_progressing
    monkeypatch.setattr(Pool, "stalled_s", lambda _: 1e9)
    after = task.is_progressing
    await task.close()

    assert before and not after


async def test_how_long_the_thread_has_been_at_a_piece_is_known() -> None:
    pool, begun, gate = Pool(), threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return gate.wait(10)

    assert pool.stalled_s() == 0
    running = asyncio.create_task(pool.run(request(), SMALL + 1, work))
    assert await asyncio.to_thread(begun.wait, 10) and pool.stalled_s() > 0

    gate.set()
    assert await running and pool.stalled_s() == 0
    await pool.close()
