from __future__ import annotations

import asyncio
import time

import pytest

from loadtests.hostile.probe import TIMER_S, Probe, held, metrics_page, own_timer, probe
from tests.loadtests.hostile.conftest import StandIn, json_answer

PAGE = """# TYPE trifold_kv_slots gauge
trifold_kv_slots{model="stories"} 64.0
# TYPE trifold_kv_slots_used gauge
trifold_kv_slots_used{model="stories"} 3.0
trifold_kv_slots_used{model="translate"} 0.0
# TYPE trifold_sequences_running gauge
trifold_sequences_running{model="stories"} 0.0
# TYPE trifold_sequences_waiting gauge
trifold_sequences_waiting{model="sentiment"} 2.0
"""


async def probed(stand_in: StandIn, until: asyncio.Event) -> Probe:
    """Return what probes found until something happened."""
    found = Probe()
    probing = asyncio.create_task(probe("stories", stand_in.address, found))
    await asyncio.wait_for(until.wait(), 10)
    probing.cancel()
    await asyncio.gather(probing, return_exceptions=True)
    return found


def test_what_is_held_is_read_from_the_metrics_page() -> None:
    assert held(PAGE) == {"trifold_kv_slots_used stories": 3.0, "trifold_sequences_waiting sentiment": 2.0}


def test_a_page_without_what_is_held_tells_nothing() -> None:
    assert held(PAGE.replace("trifold_sequences_waiting", "trifold_sequences_queued")) is None


async def test_a_stall_is_found_by_all_probes_that_were_due_meanwhile(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtests.hostile.probe.EVERY_S", 0.02)
    asked = 0
    goes_on = asyncio.Event()

    def answer(_line: str, _body: bytes) -> bytes:
        nonlocal asked
        asked += 1
        if asked == 1:
            time.sleep(0.5)
        if asked == 3:
            goes_on.set()
        return json_answer({})

    stand_in.answer = answer
    found = await probed(stand_in, goes_on)

    late = [seconds for seconds in found.seconds if seconds > 0.2]
    assert len(late) >= 10 and late == sorted(late, reverse=True)


async def test_probes_ask_on_one_connection_and_count_what_fails(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtests.hostile.probe.EVERY_S", 0.01)
    answers = iter([json_answer({}), json_answer({}, status=503), *[json_answer({})] * 5])
    have_all = asyncio.Event()

    def answer(_line: str, _body: bytes) -> bytes:
        last = next(answers, None)
        if last is None:
            have_all.set()
        return last or json_answer({})

    stand_in.answer = answer
    found = await probed(stand_in, have_all)

    assert stand_in.seen[0].head.startswith("GET /models/stories/health HTTP/1.1")
    assert len(stand_in.transports) == 1 and found.failures == 1 and len(found.seconds) >= 6


async def test_a_metrics_page_that_is_refused_is_an_error(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: json_answer({}, status=401)

    with pytest.raises(OSError, match="answers 401"):
        await metrics_page(stand_in.address, None)


async def test_a_load_that_stands_still_itself_says_so() -> None:
    late: list[float] = []
    timing = asyncio.create_task(own_timer(late))

    await asyncio.sleep(2 * TIMER_S)
    time.sleep(0.3)  # noqa: ASYNC251  # it stands still
    await asyncio.sleep(2 * TIMER_S)
    timing.cancel()

    assert max(late) > 0.2
