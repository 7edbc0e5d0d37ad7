from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import pytest

from service.tasks.merging import all_of, merge


async def count(to: int, closed: list[str] | None = None, fail: bool = False) -> AsyncGenerator[int, None]:
    try:
        for number in range(to):
            await asyncio.sleep(0)
            yield number
        if fail:
            raise ValueError("broken")
    finally:
        if closed is not None:
            closed.append("closed")


async def test_items_come_with_their_stream_and_in_its_order() -> None:
    items = [item async for item in merge([count(3), count(5)], at_once=9)]

    assert [number for stream, number in items if stream == 0] == [0, 1, 2]
    assert [number for stream, number in items if stream == 1] == [0, 1, 2, 3, 4]


async def test_the_first_error_ends_all_streams() -> None:
    closed: list[str] = []
    with pytest.raises(ValueError, match="broken"):
        async for _ in merge([count(10**9, closed), count(2, fail=True)], at_once=9):
            pass

    assert closed == ["closed"]


async def test_leaving_early_closes_all_streams() -> None:
    closed: list[str] = []
    async with aclosing(merge([count(10**9, closed), count(10**9, closed)], at_once=9)) as items:
        await anext(items)

    assert closed == ["closed", "closed"]


async def test_all_of_answers_in_order_and_runs_so_many_at_once() -> None:
    running = most = 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    assert await all_of([partial(work, number) for number in range(9)], at_once=4) == list(range(9))
    assert most == 4


async def test_all_of_cancels_the_rest_after_an_error() -> None:
    cancelled = asyncio.Event()

    async def patient() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await all_of([patient, broken], at_once=2)
    await asyncio.wait_for(cancelled.wait(), 1)


async def test_no_more_streams_run_at_once_than_asked_for() -> None:
    running, most = 0, 0

    async def stream() -> AsyncGenerator[int, None]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        yield 1
        running -= 1

    items = [item async for item in merge([stream() for _ in range(6)], at_once=2)]
    assert len(items) == 6 and most == 2
