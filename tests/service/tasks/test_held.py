from __future__ import annotations

import asyncio
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from service.engine.admission import Admission, AdmissionLimits, Permit
from service.engine.arrays import Array
from service.engine.inputs import TextInput
from service.tasks.embed_sparse import ROWS_AT_ONCE, in_parts
from service.tasks.held import Held


class Holding:
    """Somebody who holds an amount until told otherwise."""

    def __init__(self, held: Held, amount: int, client: str = "") -> None:
        self.holds, self._end = False, asyncio.Event()
        self.task = asyncio.create_task(self._hold(held, amount, client))

    async def _hold(self, held: Held, amount: int, client: str) -> None:
        async with held.hold(request(client), amount):
            self.holds = True
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await self.task


def request(client: str = "") -> Permit:
    return Admission(AdmissionLimits()).admit(client, 1, 1)


async def holding(held: Held, *amounts: int, client: str = "") -> list[Holding]:
    found = [Holding(held, amount, client) for amount in amounts]
    await asyncio.sleep(0.01)
    return found


async def test_who_would_be_over_the_bound_waits_for_those_before_it() -> None:
    first, second, third, small = await holding(Held(10), 6, 4, 5, 1)
    assert first.holds and second.holds
    assert not third.holds and not small.holds  # in turn, though the last would fit

    await first.end()
    await asyncio.sleep(0.01)
    assert third.holds and small.holds
    for each in (second, third, small):
        await each.end()


async def test_clients_take_turns() -> None:
    held = Held(10)
    async with held.hold(request("a"), 10):
        greedy = await holding(held, 10, 10, 10, client="a")
        (other,) = await holding(held, 10, client="b")
    for first in (greedy[0], other, greedy[1], greedy[2]):
        await asyncio.sleep(0.01)
        assert first.holds
        await first.end()


async def test_what_is_over_the_bound_by_itself_comes_alone() -> None:
    held = Held(10)
    large, small = await holding(held, 99, 1)
    assert large.holds and not small.holds

    await large.end()
    await small.end()
    assert small.holds


@pytest.mark.parametrize("its_turn_had_come", [False, True])
async def test_who_leaves_while_waiting_takes_nothing_along(its_turn_had_come: bool) -> None:
    held = Held(10)
    async with held.hold(request(), 8):
        leaving, last = await holding(held, 9, 2)
        if not its_turn_had_come:
            leaving.task.cancel()
            await asyncio.sleep(0.01)
            assert last.holds
    leaving.task.cancel()
    await asyncio.sleep(0.01)

    assert last.holds and not leaving.holds
    await last.end()
    async with asyncio.timeout(1), held.hold(request(), 10):
        pass


async def test_who_leaves_in_the_moment_in_which_there_is_room_harms_nobody() -> None:
    held = Held(10)
    async with held.hold(request(), 10):
        leaving = await holding(held, 1, 1)
        for each in leaving:
            each.task.cancel()
    (last,) = await holding(held, 10)

    assert last.holds and not any(each.holds for each in leaving)
    await last.end()


async def test_what_is_read_is_not_held_while_the_next_part_of_its_request_waits() -> None:
    alive: list[weakref.ref[Array]] = []
    most = 0

    async def run(_permit: Permit, inputs: list[TextInput], _cost: int) -> list[Array]:
        nonlocal most
        rows: list[Array] = [np.zeros(1) for _ in inputs]
        alive.extend(map(weakref.ref, rows))
        most = max(most, sum(each() is not None for each in alive))
        await asyncio.sleep(0)
        return rows

    async def read(_permit: Permit, _size: int, _make: object, rows: list[Array]) -> list[int]:
        await asyncio.sleep(0)
        return [0 for _ in rows]

    pool, manifest = SimpleNamespace(run=read), SimpleNamespace(vocab_size=1)
    encoder: Any = SimpleNamespace(by_word=Held(2 * ROWS_AT_ONCE), manifest=manifest, run=run, pool=pool)
    inputs = [TextInput([1], [0])] * 3 * ROWS_AT_ONCE
    await asyncio.gather(*(in_parts(encoder, request(), inputs, list) for _ in range(10)))

    assert len(alive) == 10 * len(inputs)
    assert most <= 2 * ROWS_AT_ONCE
