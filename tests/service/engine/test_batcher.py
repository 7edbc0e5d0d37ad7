from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from service.engine.batcher import Batcher, BatcherLimits
from service.engine.engine import EngineFailed
from service.engine.inputs import OneShotInput, TextInput
from service.engine.observer import Step
from service.engine.scheduler import Overloaded
from service.engine.session import Array, SessionOptions
from tests.conftest import TinyPackage


@asynccontextmanager
async def running(package: TinyPackage, **limits: int) -> AsyncIterator[Batcher]:
    batcher = Batcher(package.folder, package.manifest, SessionOptions(threads=1), BatcherLimits(**limits))
    try:
        yield batcher
    finally:
        await batcher.close()


def item(length: int) -> TextInput:
    return TextInput([2] + [30 + length] * (length - 1), [0] * length)


def spy_on(batcher: Batcher, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Record the lengths of every batch that runs."""
    seen: list[list[int]] = []
    compute = batcher._compute

    def recorded(batch: list[OneShotInput]) -> Array:
        seen.append([item.tokens for item in batch])
        return compute(batch)

    monkeypatch.setattr(batcher, "_compute", recorded)
    return seen


async def test_what_waits_runs_together_within_the_padded_budget(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(sentiment, batch_tokens=64) as batcher:
        seen = spy_on(batcher, monkeypatch)
        steps: list[Step] = []
        monkeypatch.setattr(batcher._observer, "stepped", steps.append)
        await asyncio.gather(*(batcher.run([item(length)]) for length in (5, 30, 6, 31, 7, 8, 29)))

    assert sorted(length for batch in seen for length in batch) == [5, 6, 7, 8, 29, 30, 31]
    assert all(max(batch) * len(batch) <= 64 for batch in seen)
    assert seen[0] == [5, 6, 7, 8]  # those of like length go with the oldest
    assert [step.tokens for step in steps] == list(map(sum, seen))
    assert [step.padded_tokens for step in steps] == [max(batch) * len(batch) for batch in seen]


async def test_answers_go_to_those_who_asked(sentiment: TinyPackage) -> None:
    async with running(sentiment) as batcher:
        alone = [(await batcher.run([item(length)]))[0] for length in (3, 9, 20)]
        together = await asyncio.gather(*(batcher.run([item(length)]) for length in (3, 9, 20)))

    for one, (other,) in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


async def test_one_longer_than_the_budget_runs_alone(sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(sentiment, batch_tokens=10) as batcher:
        seen = spy_on(batcher, monkeypatch)
        await batcher.run([item(40), item(4), item(4)])

    assert seen == [[40], [4, 4]]


async def test_a_caller_that_left_is_skipped(sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(sentiment) as batcher:
        seen = spy_on(batcher, monkeypatch)
        tasks = [asyncio.create_task(batcher.run([item(length)])) for length in (3, 4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await tasks[0]
        await batcher.run([item(5)])

    assert [4] not in seen and 4 not in seen[0]
    assert batcher.load().waiting == 0


async def test_a_full_queue_refuses(sentiment: TinyPackage) -> None:
    async with running(sentiment, max_waiting_sequences=2) as batcher:
        tasks = [asyncio.create_task(batcher.run([item(3)])) for _ in range(6)]
        results = await asyncio.gather(*tasks, return_exceptions=True)

    assert any(isinstance(result, Overloaded) for result in results)
    assert any(isinstance(result, list) for result in results)


async def test_a_failing_batch_fails_alone(sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(sentiment) as batcher:
        compute = batcher._compute
        monkeypatch.setattr(batcher, "_compute", lambda batch: 1 / 0)
        with pytest.raises(EngineFailed):
            await batcher.run([item(3)])
        monkeypatch.setattr(batcher, "_compute", compute)

        assert len(await batcher.run([item(3)])) == 1
