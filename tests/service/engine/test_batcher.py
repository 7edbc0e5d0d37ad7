from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from threading import Event, get_native_id
from typing import Any

import numpy as np
import pytest

from service.engine import batcher as module
from service.engine import worker
from service.engine.admission import AdmissionLimits
from service.engine.arrays import Array
from service.engine.batcher import BATCH_TOKENS, BATCH_TOKENS_ON_DEVICE, Batcher
from service.engine.errors import EngineClosed, EngineFailed, Overloaded
from service.engine.inputs import OneShotInput, TextInput
from service.engine.observer import Step
from service.engine.priority import COMPUTES, YIELDS
from service.engine.providers import Provider
from service.engine.session import Session, SessionOptions
from service.engine.worker import REST_S
from tests.conftest import MakePackage, TinyPackage


@asynccontextmanager
async def running(
    package: TinyPackage, batch_tokens: int | None = None, admission: AdmissionLimits | None = None
) -> AsyncIterator[Batcher]:
    options = SessionOptions(threads=1)
    batcher = Batcher(package.folder, package.manifest, options, batch_tokens, admission=admission)
    try:
        yield batcher
    finally:
        await batcher.close()


def item(length: int) -> TextInput:
    return TextInput([2] + [30 + length] * (length - 1), [0] * length)


async def run(batcher: Batcher, *inputs: OneShotInput, client: str = "") -> list[Array]:
    with batcher.admission.admit(client, len(inputs), sum(each.cost for each in inputs)) as permit:
        return await batcher.run(permit, inputs)


def spy_on(batcher: Batcher, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Record the lengths of every batch that runs."""
    seen: list[list[int]] = []
    compute = batcher._compute

    def recorded(batch: Sequence[OneShotInput]) -> list[Array]:
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
        await asyncio.gather(*(run(batcher, item(length)) for length in (5, 30, 6, 31, 7, 8, 29)))

    assert sorted(length for batch in seen for length in batch) == [5, 6, 7, 8, 29, 30, 31]
    assert all(max(batch) * len(batch) <= 64 for batch in seen)
    assert seen[0] == [5, 6, 7, 8]  # those of like length go with the oldest
    assert [step.tokens for step in steps] == list(map(sum, seen))
    assert [step.padded_tokens for step in steps] == [max(batch) * len(batch) for batch in seen]


async def test_a_batch_of_sparse_vectors_has_no_more_logits_than_may_be_held(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("sparse")
    monkeypatch.setattr(module, "LOGITS", 40 * package.manifest.vocab_size)
    async with running(package) as batcher:
        seen = spy_on(batcher, monkeypatch)
        await asyncio.gather(*(run(batcher, item(20)) for _ in range(8)), run(batcher, item(50)))

    assert sorted(map(len, seen)) == [1, 2, 2, 2, 2]


async def test_a_missing_word_costs_more_than_a_token_and_is_counted_as_one(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(make_package("encoder"), batch_tokens=64) as batcher:
        seen, steps, admitted = spy_on(batcher, monkeypatch), list[Step](), list[int]()
        monkeypatch.setattr(batcher._observer, "stepped", steps.append)
        monkeypatch.setattr(batcher._observer, "admitted", lambda _seconds, tokens: admitted.append(tokens))
        missing = TextInput(item(8).ids, item(8).segment_ids, places=[2, 3])
        with batcher.admission.admit("", 3, 3 * missing.cost) as permit:
            await batcher.run(permit, [missing] * 3)

    assert seen == [[8], [8], [8]], "two would cost 80"
    assert admitted == [8] * 3 and permit.spending.tokens == 24
    assert [(step.tokens, step.padded_tokens) for step in steps] == [(8, 8)] * 3


@pytest.mark.parametrize(
    ("provider", "batch_tokens", "most"),
    [("cpu", None, BATCH_TOKENS), ("cuda", None, BATCH_TOKENS_ON_DEVICE), ("cuda", 64, 64)],
)
async def test_a_device_takes_more_at_once_unless_told(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch, provider: Provider, batch_tokens: int | None, most: int
) -> None:
    class Elsewhere(Session):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.provider = provider

    monkeypatch.setattr(module, "Session", Elsewhere)
    rows = most // 32
    async with running(sentiment, batch_tokens, AdmissionLimits(2 * rows, 64 * rows)) as batcher:
        seen = spy_on(batcher, monkeypatch)
        await asyncio.gather(*(run(batcher, item(32)) for _ in range(2 * rows)))

    assert [len(batch) for batch in seen] == [rows, rows]


async def test_answers_go_to_those_who_asked(sentiment: TinyPackage) -> None:
    async with running(sentiment) as batcher:
        alone = [(await run(batcher, item(length)))[0] for length in (3, 9, 20)]
        together = await asyncio.gather(*(run(batcher, item(length)) for length in (3, 9, 20)))

    for one, (other,) in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


async def test_one_longer_than_the_budget_runs_alone(sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(sentiment, batch_tokens=10) as batcher:
        seen = spy_on(batcher, monkeypatch)
        await run(batcher, item(40), item(4), item(4))

    assert seen == [[40], [4, 4]]


async def test_a_caller_that_left_is_skipped(sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(sentiment) as batcher:
        seen = spy_on(batcher, monkeypatch)
        tasks = [asyncio.create_task(run(batcher, item(length))) for length in (3, 4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await tasks[0]
        await run(batcher, item(5))

    assert [4] not in seen and 4 not in seen[0]
    assert batcher.load().waiting == 0


async def test_what_callers_that_left_have_asked_is_kept_nowhere(sentiment: TinyPackage) -> None:
    async with running(sentiment) as batcher:
        tasks = [asyncio.create_task(run(batcher, item(length))) for length in (3, 4)]
        await asyncio.sleep(0)
        assert len(list(batcher._short._waiting.in_turn())) == 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert not list(batcher._short._waiting.in_turn())


async def test_a_batcher_that_is_closed_refuses(sentiment: TinyPackage) -> None:
    async with running(sentiment) as batcher:
        await run(batcher, item(3))
    with pytest.raises(EngineClosed):
        await asyncio.wait_for(run(batcher, item(3)), 10)


async def test_a_full_queue_refuses(sentiment: TinyPackage) -> None:
    async with running(sentiment, admission=AdmissionLimits(max_waiting_slots=2)) as batcher:
        tasks = [asyncio.create_task(run(batcher, item(3))) for _ in range(6)]
        results = await asyncio.gather(*tasks, return_exceptions=True)

    refused = [result for result in results if isinstance(result, Overloaded)]
    answered = [result for result in results if isinstance(result, list)]
    assert refused and answered and len(refused) + len(answered) == 6


async def test_the_input_on_which_the_graph_fails_fails_alone(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(sentiment) as batcher:
        compute = batcher._compute

        def poisoned(batch: Sequence[OneShotInput]) -> list[Array]:
            return 1 / 0 if any(each.tokens == 13 for each in batch) else compute(batch)  # type: ignore[return-value]

        monkeypatch.setattr(batcher, "_compute", poisoned)
        lengths = (3, 4, 13, 5, 6)
        results = await asyncio.gather(*(run(batcher, item(length)) for length in lengths), return_exceptions=True)

    assert [isinstance(result, EngineFailed) for result in results] == [length == 13 for length in lengths]


async def test_a_graph_that_can_compute_nothing_any_more_is_not_healthy(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(sentiment) as batcher:
        monkeypatch.setattr(batcher, "_compute", lambda _: 1 / 0)
        results = await asyncio.gather(*(run(batcher, item(5)) for _ in range(3)), return_exceptions=True)

        assert all(isinstance(result, EngineFailed) for result in results)
        assert not batcher.is_progressing(60)


async def test_a_failure_outside_the_graph_leaves_nobody_waiting_and_is_not_healthy(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(sentiment, batch_tokens=8) as batcher:
        monkeypatch.setattr(batcher._short.worker, "run", lambda *_: 1 / 0)
        tasks = [run(batcher, item(5)) for _ in range(4)]
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

        assert all(isinstance(result, EngineFailed) for result in results)
        assert not batcher.is_progressing(60)
        assert batcher.load().waiting == 0


async def test_a_flood_of_one_client_delays_another_by_one_batch(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(sentiment, batch_tokens=16) as batcher:
        seen = spy_on(batcher, monkeypatch)
        flood = [asyncio.create_task(run(batcher, *[item(8)] * 2, client="flood")) for _ in range(8)]
        await asyncio.sleep(0)
        await run(batcher, item(5), client="other")
        batches_before = len(seen)
        await asyncio.gather(*flood)

    assert 5 in seen[0] + seen[1] + seen[2] and batches_before <= 4


async def test_a_short_request_does_not_wait_for_a_long_one(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = Event(), Event()
    async with running(sentiment, batch_tokens=16) as batcher:
        compute = batcher._compute

        def waiting_for_leave(batch: Sequence[OneShotInput]) -> list[Array]:
            if batch[0].tokens == 9:
                begun.set()
                assert may_end.wait(60)
            return compute(batch)

        monkeypatch.setattr(batcher, "_compute", waiting_for_leave)
        long = asyncio.create_task(run(batcher, item(9), item(9)))
        await asyncio.to_thread(begun.wait, 60)
        (short,) = await run(batcher, item(5))
        load = batcher.load()
        may_end.set()
        first, second = await long

    assert not np.array_equal(short, first)
    np.testing.assert_array_equal(first, second)
    assert (load.running, load.waiting) == (1, 1)


async def test_a_long_request_that_hangs_is_seen_beside_short_ones_that_go_on(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = Event(), Event()
    async with running(sentiment, batch_tokens=16) as batcher:
        compute = batcher._compute

        def hanging(batch: Sequence[OneShotInput]) -> list[Array]:
            if batch[0].tokens == 9:
                begun.set()
                assert may_end.wait(60)
            return compute(batch)

        monkeypatch.setattr(batcher, "_compute", hanging)
        long = asyncio.create_task(run(batcher, item(9), item(9)))
        await asyncio.to_thread(begun.wait, 60)
        await asyncio.sleep(0.05)
        await run(batcher, item(5))
        stalled_s = batcher.load().stalled_s
        may_end.set()
        await long

    assert stalled_s >= 0.05


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")
async def test_memory_is_given_back_only_while_neither_long_nor_short_requests_run(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "REST_S", 3600.0)  # the lanes' own rests stay away, however slow the machine is
    async with running(sentiment, batch_tokens=8) as batcher:
        seen = spy_on(batcher, monkeypatch)
        await run(batcher, item(4))
        await asyncio.to_thread(batcher.rest)  # as the lane of long requests may, which has had none
        assert seen == [[4]]
        batcher._ran_at -= REST_S
        long: Any = item(20)
        batcher._long.running = [long]  # for longer than that
        await asyncio.to_thread(batcher.rest)
        assert seen == [[4]]
        batcher._long.running = []
        await asyncio.to_thread(batcher.rest)

    assert seen == [[4], [2]]


async def test_long_requests_run_in_a_thread_that_yields_to_others(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    niceness: dict[int, int] = {}
    async with running(sentiment, batch_tokens=16) as batcher:
        compute = batcher._compute

        def noting(batch: Sequence[OneShotInput]) -> list[Array]:
            niceness[batch[0].tokens] = os.getpriority(os.PRIO_PROCESS, get_native_id())
            return compute(batch)

        monkeypatch.setattr(batcher, "_compute", noting)
        await run(batcher, item(9), item(9))
        await run(batcher, item(5))

    assert niceness[9] == min(19, niceness[5] + YIELDS - COMPUTES)


async def test_a_vector_is_the_same_to_the_last_bit_in_any_company(make_package: MakePackage) -> None:
    texts = [item(length) for length in range(2, 34)]
    async with running(make_package("embed", "int8")) as batcher:
        alone = [(await run(batcher, text))[0] for text in texts]
        together = await run(batcher, *texts)

    assert len(alone[0]) > 1
    for one, among_others in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, among_others)
