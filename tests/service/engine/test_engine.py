from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from threading import get_native_id
from typing import Any

import pytest
import torch

from model.architectures import DecoderLM, EncoderDecoder
from model.decoding import beam_search, greedy, next_logits
from model.package.manifest import Precision
from service.engine import worker
from service.engine.admission import AdmissionLimits
from service.engine.batch import Batch
from service.engine.beam_search import BeamParams, Hypothesis
from service.engine.engine import Engine
from service.engine.errors import Overloaded
from service.engine.mailbox import Output
from service.engine.observer import Silent
from service.engine.priority import COMPUTES, YIELDS
from service.engine.runner import Runner
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import Scheduler, SchedulerLimits
from service.engine.sequence import Sequence
from service.engine.session import SessionOptions
from tests.conftest import MakePackage, TinyPackage

PROMPTS = [[5, 9, 100], [7], [30, 31, 32, 33, 34, 35, 36], [200, 3, 90, 12, 44]]
GREEDY = SamplingParams(max_tokens=12, temperature=0)


@asynccontextmanager
async def running(
    package: TinyPackage, admission: AdmissionLimits | None = None, **limits: Any
) -> AsyncIterator[Engine]:
    options = SessionOptions(threads=1)
    engine = Engine(package.folder, package.manifest, options, SchedulerLimits(**limits), admission=admission)
    try:
        yield engine
    finally:
        await engine.close()


def with_end(package: TinyPackage, params: SamplingParams) -> SamplingParams:
    assert package.manifest.special_ids.end is not None
    return SamplingParams(**{**vars(params), "stop_ids": frozenset({package.manifest.special_ids.end})})


async def collect(engine: Engine, params: SamplingParams | BeamParams, **ids: list[int]) -> Output:
    merged = Output()
    async for output in engine.generate(params, **ids):
        tokens, prompt = [*merged.tokens, *output.tokens], [*merged.prompt, *output.prompt]
        merged = Output(tokens, output.finish_reason, output.hypotheses, prompt)
    return merged


async def ids_of(engine: Engine, params: SamplingParams | BeamParams, **ids: list[int]) -> list[int]:
    return [token.id for token in (await collect(engine, params, **ids)).tokens]


def slow_greedy(package: TinyPackage, prompt: list[int], max_tokens: int) -> list[int]:
    assert isinstance(package.model, DecoderLM) and package.manifest.special_ids.end is not None
    return greedy(next_logits(package.model), prompt, package.manifest.special_ids.end, max_tokens)


def slow_translation(package: TinyPackage, source: list[int], beam_size: int, max_tokens: int) -> list[Hypothesis]:
    assert isinstance(package.model, EncoderDecoder)
    special = package.manifest.special_ids
    assert special.start is not None and special.end is not None
    logits = next_logits(package.model, source)
    found = beam_search(logits, [special.start], special.end, max_tokens, beam_size, n_best=beam_size)
    return [Hypothesis(hypothesis.ids, hypothesis.score) for hypothesis in found]


@pytest.mark.parametrize("precision", ["float16", "int8", "int8-static", "int8-blocks", "int4-blocks"])
@pytest.mark.parametrize("name", ["stories", "translate"])
async def test_every_precision_decodes(make_package: MakePackage, name: str, precision: Precision) -> None:
    package, ids = make_package(name, precision), {"stories": "prompt_ids", "translate": "source_ids"}[name]
    async with running(package) as engine:
        greedy_ids = await ids_of(engine, GREEDY, **{ids: PROMPTS[3]})
        found = await collect(engine, BeamParams(max_tokens=12, beam_size=3), **{ids: PROMPTS[3]})
    async with running(make_package(name)) as engine:
        expected = await ids_of(engine, GREEDY, **{ids: PROMPTS[3]})

    assert len(greedy_ids) == 12 and found.hypotheses
    if precision not in {"int4-blocks", "int8-static"}:  # too coarse for random weights, whose logits are nearly level
        assert greedy_ids == expected


async def test_cached_greedy_equals_the_cache_free_truth(stories: TinyPackage) -> None:
    async with running(stories) as engine:
        for prompt in PROMPTS:
            assert await ids_of(engine, with_end(stories, GREEDY), prompt_ids=prompt) == slow_greedy(
                stories, prompt, 12
            )


@pytest.mark.parametrize("precision", ["float32", "int8", "int8-static"])
async def test_sequences_answer_the_same_together_as_alone(make_package: MakePackage, precision: str) -> None:
    package = make_package("stories", precision)
    async with running(package) as engine:
        alone = [await ids_of(engine, GREEDY, prompt_ids=prompt) for prompt in PROMPTS]
        together = await asyncio.gather(*(ids_of(engine, GREEDY, prompt_ids=prompt) for prompt in PROMPTS))

    assert list(together) == alone


@pytest.mark.parametrize("params", [GREEDY, BeamParams(max_tokens=12, beam_size=3)], ids=["greedy", "beam"])
async def test_translations_are_the_same_together_as_alone(
    make_package: MakePackage, params: SamplingParams | BeamParams
) -> None:
    package = make_package("translate", "int8")
    sources = [[5, 40, 2], [3, *range(40, 70), 2], [4, 100, 101, 102, 103, 2], [5, 9, 2]]
    async with running(package) as engine:
        alone = [await collect(engine, params, source_ids=source) for source in sources]
        together = await asyncio.gather(*(collect(engine, params, source_ids=source) for source in sources))

    assert list(together) == alone  # to the last bit of the scores


async def test_a_prompt_longer_than_the_budget_is_computed_in_chunks(stories: TinyPackage) -> None:
    prompt = [index % 300 for index in range(3, 60)]
    async with running(stories, prefill_tokens=16) as engine:
        answers = await asyncio.gather(
            ids_of(engine, with_end(stories, GREEDY), prompt_ids=PROMPTS[0]),
            ids_of(engine, with_end(stories, GREEDY), prompt_ids=prompt),
        )

    assert list(answers) == [slow_greedy(stories, PROMPTS[0], 12), slow_greedy(stories, prompt, 12)]


@pytest.mark.parametrize("beam_size", [1, 2, 4])
async def test_beam_search_in_the_batch_equals_the_slow_one(translate: TinyPackage, beam_size: int) -> None:
    sources = [[5, 40, 41, 2], [3, 17, 18, 19, 20, 21, 22, 2], [4, 100, 2]]
    params = BeamParams(max_tokens=10, beam_size=beam_size, n_best=beam_size)
    async with running(translate, max_slots=16) as engine:
        found = await asyncio.gather(*(collect(engine, params, source_ids=source) for source in sources))

    for source, output in zip(sources, found, strict=True):
        expected = slow_translation(translate, source, beam_size, 10)
        assert [hypothesis.ids for hypothesis in output.hypotheses] == [hypothesis.ids for hypothesis in expected]
        assert [h.score for h in output.hypotheses] == pytest.approx([h.score for h in expected], abs=1e-4)


async def test_beam_of_a_generator_equals_the_slow_one(stories: TinyPackage) -> None:
    assert isinstance(stories.model, DecoderLM) and stories.manifest.special_ids.end is not None
    end = stories.manifest.special_ids.end
    expected = beam_search(next_logits(stories.model), PROMPTS[2], end, 8, 3, n_best=3)
    async with running(stories) as engine:
        output = await collect(engine, BeamParams(max_tokens=8, beam_size=3, n_best=3), prompt_ids=PROMPTS[2])

    assert [hypothesis.ids for hypothesis in output.hypotheses] == [hypothesis.ids for hypothesis in expected]


async def test_beam_1_is_greedy(translate: TinyPackage) -> None:
    source = [5, 40, 41, 42, 2]
    async with running(translate) as engine:
        beam = await collect(engine, BeamParams(max_tokens=10, beam_size=1), source_ids=source)
        tokens = await ids_of(engine, with_end(translate, GREEDY), source_ids=source)

    assert beam.hypotheses[0].ids == tokens[:10]


async def test_beams_greedy_and_sampling_share_a_batch(translate: TinyPackage) -> None:
    source = [5, 40, 41, 2]
    sampled = SamplingParams(max_tokens=10, temperature=1.0, seed=3)
    beam = BeamParams(max_tokens=10, beam_size=3)
    async with running(translate) as engine:
        alone = [
            await collect(engine, sampled, source_ids=source),
            await collect(engine, beam, source_ids=source),
            await collect(engine, GREEDY, source_ids=source),
        ]
        together = await asyncio.gather(
            collect(engine, sampled, source_ids=source),
            collect(engine, beam, source_ids=source),
            collect(engine, GREEDY, source_ids=source),
        )

    assert [output.tokens for output in together] == [output.tokens for output in alone]
    assert [h.ids for h in together[1].hypotheses] == [h.ids for h in alone[1].hypotheses]


async def test_the_same_seed_gives_the_same_text_whatever_else_runs(stories: TinyPackage) -> None:
    params = SamplingParams(max_tokens=20, temperature=1.0, top_k=50, top_p=0.9, seed=11)
    async with running(stories) as engine:
        alone = await ids_of(engine, params, prompt_ids=[5, 6])
        others = [ids_of(engine, SamplingParams(max_tokens=30), prompt_ids=prompt) for prompt in PROMPTS]
        crowded, *_ = await asyncio.gather(ids_of(engine, params, prompt_ids=[5, 6]), *others)

    assert crowded == alone
    assert len(set(alone)) > 5


async def test_a_reader_that_leaves_gives_its_slots_back_and_is_told_of(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[object, ...]] = []
    monkeypatch.setattr(Silent, "finished", lambda _, *told: ends.append(told))
    async with running(stories) as engine:
        async with aclosing(engine.generate(SamplingParams(max_tokens=100), prompt_ids=[5])) as outputs:
            await anext(outputs)
            assert engine.scheduler.slots_used == 1
        await until_idle(engine)

        assert engine.scheduler.slots_used == 0
        await collect(engine, GREEDY, prompt_ids=[5])

    (left, decoded, _), (whole, tokens, _) = ends
    assert (left, whole, tokens) == ("abort", "length", 12) and decoded in range(1, 100)


async def until_idle(engine: Engine) -> None:
    async with asyncio.timeout(60):
        while engine.scheduler.running or engine.scheduler.waiting_sequences:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.001)
    engine.scheduler.check_integrity()


async def test_a_full_queue_refuses_and_loses_nobody(stories: TinyPackage) -> None:
    async with running(stories, AdmissionLimits(max_waiting_slots=2), max_slots=1) as engine:
        tasks = [asyncio.create_task(ids_of(engine, GREEDY, prompt_ids=[5, index])) for index in range(6)]
        results = await asyncio.gather(*tasks, return_exceptions=True)

    refused = [result for result in results if isinstance(result, Overloaded)]
    answered = [result for result in results if isinstance(result, list)]
    assert 1 <= len(refused) <= 4 and len(refused) + len(answered) == 6
    assert all(len(result) == 12 for result in answered)


async def test_what_an_aborted_sequence_has_left_for_its_reader_is_passed_over(stories: TinyPackage) -> None:
    async with running(stories) as engine:
        sequences = [engine.sequence(SamplingParams(max_tokens=30, temperature=0), prompt) for prompt in PROMPTS[:2]]
        finished: dict[int, str | None] = {}
        with engine.admission.admit("", 2, 20) as permit:
            async for sequence, output in engine.run(permit, sequences):
                finished[sequence.place] = output.finish_reason
                if sequence.place == 0 and not sequence.is_aborted:
                    sequence.mailbox.put(0, Output([]))  # what came meanwhile
                    engine.abort(sequence)
                await asyncio.sleep(0.01)  # a slow reader

    assert finished[0] is None and finished[1] in {"length", "stop"}


async def test_of_a_requests_sequences_no_more_are_made_than_run(stories: TinyPackage) -> None:
    made = ended = 0
    async with running(stories, max_slots=2) as engine:

        def sequences() -> Iterator[Sequence]:
            nonlocal made
            for place in range(6):
                made += 1
                yield engine.sequence(GREEDY, [5, 9 + place])

        with engine.admission.admit("", 6, 12) as permit:
            async for _, output in engine.run(permit, sequences()):
                assert made <= ended + 2
                ended += output.finish_reason is not None

    assert ended == 6


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux")
async def test_steps_that_may_wait_run_in_a_thread_that_yields_to_others(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    niceness: list[int] = []
    run = Runner.run

    def noting(runner: Runner, batch: Batch) -> Any:
        niceness.append(os.getpriority(os.PRIO_PROCESS, get_native_id()))
        return run(runner, batch)

    monkeypatch.setattr(Runner, "run", noting)
    async with running(stories) as engine:
        await ids_of(engine, GREEDY, prompt_ids=[5])
        *_, own = niceness
        niceness.clear()
        monkeypatch.setattr(Scheduler, "may_wait", lambda *_: True)
        await ids_of(engine, GREEDY, prompt_ids=[5])

    assert set(niceness) == {min(19, own + YIELDS - COMPUTES)}


async def test_a_prompts_own_probabilities_are_those_of_the_model(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.runner.LOGPROB_TOKENS", 32)
    prompt = list(range(5, 75))  # more than are looked at together
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=2)
    async with running(stories, prefill_tokens=48) as engine:
        await ids_of(engine, GREEDY, prompt_ids=prompt)  # the cache knows it, and must not be asked
        output = await collect(engine, params, prompt_ids=prompt)

    assert isinstance(stories.model, DecoderLM)
    with torch.no_grad():
        expected = stories.model(torch.tensor([prompt]))[0].double().log_softmax(-1)
    assert [token.id for token in output.prompt] == prompt[1:]
    for position, token in enumerate(output.prompt):
        assert token.logprob == pytest.approx(float(expected[position, prompt[position + 1]]), abs=1e-4)
        assert token.top[0][0] == int(expected[position].argmax()) and len(token.top) == 2


async def test_a_search_streams_what_all_its_beams_agree_on(translate: TinyPackage) -> None:
    sources = [[5, 40 + index, 41, 2] for index in range(8)]
    early = 0
    async with running(translate) as engine:
        for source in sources:
            outputs = []
            async for output in engine.generate(BeamParams(max_tokens=12, beam_size=3), source_ids=source):
                outputs.append(output)
            streamed = [token.id for output in outputs for token in output.tokens]
            assert streamed == outputs[-1].hypotheses[0].ids
            early += sum(len(output.tokens) for output in outputs[:-1])

    assert early > 0  # some were certain before the end


@pytest.mark.parametrize("name", ["stories", "translate"])
async def test_an_engine_at_rest_gives_its_memory_back_and_answers_as_before(
    make_package: MakePackage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "REST_S", 3600)
    given = {"prompt_ids" if name == "stories" else "source_ids": [5, 40, 41, 2]}
    async with running(make_package(name)) as engine:
        before = await ids_of(engine, SamplingParams(max_tokens=20, temperature=0), **given)
        assert engine.load().kv_bytes > 0
        monkeypatch.setattr(worker, "REST_S", 0.05)
        assert await ids_of(engine, SamplingParams(max_tokens=20, temperature=0), **given) == before
        async with asyncio.timeout(30):
            while engine.load().kv_bytes:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.01)

        assert await ids_of(engine, SamplingParams(max_tokens=20, temperature=0), **given) == before


@pytest.mark.parametrize("name", ["stories", "translate"])
async def test_random_joins_leaves_and_aborts_never_leak_a_slot(make_package: MakePackage, name: str) -> None:
    package = make_package(name)
    rng = random.Random(7)

    async def visit(engine: Engine) -> None:
        await asyncio.sleep(rng.random() * 0.1)
        ids = [rng.randrange(300) for _ in range(rng.randint(1, 30))]
        params: SamplingParams | BeamParams = SamplingParams(max_tokens=rng.randint(1, 20))
        if rng.random() < 0.4:
            params = BeamParams(max_tokens=rng.randint(1, 20), beam_size=rng.randint(1, 4))
        source = {"prompt_ids": ids} if name == "stories" else {"source_ids": ids}
        patience = rng.choice([1, 3, 1000])
        async with aclosing(engine.generate(params, **source)) as outputs:
            async for _ in outputs:
                engine.scheduler.check_integrity()
                patience -= 1
                if not patience:
                    return

    async with running(package, max_slots=6, prefill_tokens=16) as engine:
        tasks = [asyncio.create_task(visit(engine)) for _ in range(60)]
        for task in rng.sample(tasks, 10):
            await asyncio.sleep(0.005)
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await until_idle(engine)

        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results), results
        assert engine.scheduler.slots_used == 0
