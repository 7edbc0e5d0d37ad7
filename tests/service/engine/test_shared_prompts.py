"""What sequences with the same beginning have in common: it is computed once, and their answers are those alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from service.engine.batch import Batch, Chunk, StepChoice
from service.engine.isolation import Failure
from service.engine.kv_cache import bytes_of_longest
from service.engine.sampling_params import SamplingParams
from tests.conftest import MakePackage, TinyPackage
from tests.service.engine.test_engine import GREEDY, collect, ids_of, running


async def test_choices_of_one_prompt_share_its_prefill(stories: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = list(range(5, 45))
    params = [SamplingParams(max_tokens=8, temperature=1.0, seed=seed) for seed in range(4)]
    async with running(stories, prefix_cache_bytes=0) as engine:
        alone = [await ids_of(engine, one, prompt_ids=prompt) for one in params]
        fill = engine._runner._fill
        computed: list[int] = []

        def counted(chunks: list[Chunk]) -> None:
            computed.append(len(chunks))
            fill(chunks)

        monkeypatch.setattr(engine._runner, "_fill", counted)
        together = await asyncio.gather(*(ids_of(engine, one, prompt_ids=prompt) for one in params))

    assert list(together) == alone
    assert computed == [1]


async def test_choices_behind_a_known_beginning_have_it_all_and_share_the_rest(stories: TinyPackage) -> None:
    prompt, others = list(range(5, 45)), [list(range(60 + place, 110 + place)) for place in range(4)]
    params = [SamplingParams(max_tokens=8, temperature=1.0, seed=seed) for seed in range(3)]
    async with running(stories, prefix_cache_bytes=0) as engine:
        alone = [await ids_of(engine, one, prompt_ids=prompt) for one in params]
    async with running(stories) as engine:
        await ids_of(engine, GREEDY, prompt_ids=prompt)  # the cache knows it from now on
        await asyncio.gather(
            *(ids_of(engine, GREEDY, prompt_ids=other) for other in others)
        )  # whose data stay in slots
        computed = engine._runner.prefilled_tokens
        together = await asyncio.gather(*(ids_of(engine, one, prompt_ids=prompt) for one in params))

        assert list(together) == alone
        assert engine._runner.prefilled_tokens - computed == 39 - 32


async def test_a_beginning_seen_before_is_taken_from_the_cache(stories: TinyPackage) -> None:
    beginning = list(range(5, 45))
    async with running(stories) as engine:
        await ids_of(engine, GREEDY, prompt_ids=[*beginning, 50, 51, 52])
        known = await collect(engine, replace(GREEDY, logprobs=0), prompt_ids=[*beginning, 60, 61, 62])
        assert engine.scheduler.prefix_cache.hit_tokens == 32
    async with running(stories, prefix_cache_bytes=0) as engine:
        fresh = await collect(engine, replace(GREEDY, logprobs=0), prompt_ids=[*beginning, 60, 61, 62])

    assert known == fresh  # to the last bit of the probabilities


async def test_choices_of_one_prompt_share_its_probabilities(stories: TinyPackage) -> None:
    prompt = list(range(5, 75))
    params = SamplingParams(max_tokens=2, prompt_logprobs=2, seed=0)
    async with running(stories, prefill_tokens=48) as engine:
        alone = await collect(engine, params, prompt_ids=prompt)
        computed = engine._runner.prefilled_tokens
        choices = await asyncio.gather(
            *(collect(engine, replace(params, seed=seed), prompt_ids=prompt) for seed in range(3)),
            collect(engine, replace(params, prompt_logprobs=None), prompt_ids=prompt),
        )
        computed = engine._runner.prefilled_tokens - computed

    assert [choice.prompt == alone.prompt for choice in choices] == [True, True, True, False]
    assert choices[0].tokens == alone.tokens
    assert computed <= 2 * len(prompt)  # once with probabilities, once without


async def test_who_asks_the_same_while_a_long_prompt_is_computed_gets_the_same(stories: TinyPackage) -> None:
    long, other = [7 + index % 50 for index in range(100)], [9 + index % 40 for index in range(90)]
    async with running(stories, prefill_tokens=16, prefix_cache_bytes=0) as engine:
        alone = [await ids_of(engine, GREEDY, prompt_ids=prompt) for prompt in (long, other)]
    async with running(stories, prefill_tokens=16) as engine:

        async def later(prompt: list[int], outputs: int) -> list[int]:
            for _ in range(outputs):
                await asyncio.sleep(0.002)
            return await ids_of(engine, GREEDY, prompt_ids=prompt)

        found = await asyncio.gather(*(later(prompt, wait) for wait in range(8) for prompt in (long, other)))

    assert found == alone * 8


async def test_a_prefill_of_many_choices_keeps_within_the_memory_beside_what_others_left(
    make_package: MakePackage,
) -> None:
    package, short = make_package("long_stories"), SamplingParams(max_tokens=2)
    longest = package.manifest.limits.max_positions - 2
    capacity = 8 * bytes_of_longest(package.manifest)
    async with running(package, prefix_cache_bytes=0, max_slots=40, kv_cache_bytes=capacity) as engine:
        cache = engine._runner.cache
        taken: list[float] = []
        run = engine._runner.run

        def noted(batch: Batch) -> list[StepChoice | Failure | None]:
            results = run(batch)
            taken.append(cache.used_bytes / cache.capacity_bytes)
            return results

        engine._runner.run = noted  # type: ignore[method-assign]
        await asyncio.gather(*(ids_of(engine, short, prompt_ids=[5] * longest) for _ in range(6)))
        await asyncio.gather(*(ids_of(engine, short, prompt_ids=[9] * 60) for _ in range(24)))

    assert 0.5 < max(taken) <= 1
