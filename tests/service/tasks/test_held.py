from __future__ import annotations

import asyncio

import pytest

from service.tasks.held import Held


class Holding:
    """Somebody who holds an amount until told otherwise."""

    def __init__(self, held: Held, amount: int) -> None:
        self.holds, self._end = False, asyncio.Event()
        self.task = asyncio.create_task(self._hold(held, amount))

    async def _hold(self, held: Held, amount: int) -> None:
        async with held.hold(amount):
            self.holds = True
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await self.task


async def holding(held: Held, *amounts: int) -> list[Holding]:
    found = [Holding(held, amount) for amount in amounts]
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
    async with held.hold(8):
        leaving, last = await holding(held, 9, 2)
        if not its_turn_had_come:
            leaving.task.cancel()
            await asyncio.sleep(0.01)
            assert last.holds
    leaving.task.cancel()
    await asyncio.sleep(0.01)

    assert last.holds and not leaving.holds
    await last.end()
    async with asyncio.timeout(1), held.hold(10):
        pass
