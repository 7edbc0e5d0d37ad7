"""One failure does not affect the rest: the engine beside a sequence on which the graphs fail."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from service.engine.arrays import Array
from service.engine.beam_search import BeamParams
from service.engine.choosing import HostLogits
from service.engine.constraints import Constraints, ConstraintState
from service.engine.engine import Engine
from service.engine.errors import EngineClosed, EngineFailed
from service.engine.mailbox import Output
from service.engine.observer import Silent, Step
from service.engine.sampling_params import SamplingParams
from service.engine.session import BoundSession
from tests.conftest import TinyPackage
from tests.service.engine.test_engine import GREEDY, PROMPTS, collect, ids_of, running, until_idle

POISON = 7  # the graphs fail on every row that holds this token


class Panic(BaseException):
    """As of a library written in Rust."""


def poison(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the decoder fail whenever the poisonous token is fed."""
    step = engine._runner._decode_step
    run, compute = step.run, engine._runner._compute

    def poisoned_run(rows: range) -> object:
        fed = step._inputs["input_ids"][rows[0] : rows[-1] + 1]
        return 1 / 0 if POISON in fed else run(rows)

    def poisoned_compute(ids: Array, *rest: Any, wanted: bool = False) -> Array | None:
        return 1 / 0 if POISON in ids else compute(ids, *rest, wanted=wanted)  # type: ignore[return-value]  # it raises

    monkeypatch.setattr(step, "run", poisoned_run)
    monkeypatch.setattr(engine._runner, "_compute", poisoned_compute)


@pytest.mark.parametrize("poisonous", [[5, 6, POISON, 9], [5, 6, POISON]], ids=["prefill", "decode"])
async def test_the_one_on_whom_the_graphs_fail_fails_alone(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch, poisonous: list[int]
) -> None:
    prompts = [[5, 40 + index, 60] for index in range(9)]
    async with running(stories) as engine:
        alone = [await ids_of(engine, GREEDY, prompt_ids=prompt) for prompt in prompts]
        poison(engine, monkeypatch)
        tasks = [collect(engine, GREEDY, prompt_ids=prompt) for prompt in (*prompts[:4], poisonous, *prompts[4:])]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await until_idle(engine)

        assert isinstance(results.pop(4), EngineFailed)
        assert [[token.id for token in result.tokens] for result in results if isinstance(result, Output)] == alone
        assert engine.is_progressing(60)


async def test_a_prompt_that_failed_leaves_no_beginning_for_others_to_share(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = [20 + place for place in range(40)]  # more than two blocks of the prefix cache
    async with running(stories) as engine:
        whole = await ids_of(engine, GREEDY, prompt_ids=[*begins, 8])
        engine.scheduler.prefix_cache.clear()
        with monkeypatch.context() as poisoned:
            poison(engine, poisoned)
            with pytest.raises(EngineFailed):
                await collect(engine, GREEDY, prompt_ids=[*begins, POISON, 9])
        again = await ids_of(engine, GREEDY, prompt_ids=[*begins, 8])
        engine.scheduler.prefix_cache.check_integrity()

    assert again == whole


@pytest.mark.parametrize("others", [0, 1])
async def test_a_failure_while_its_reader_is_busy_is_told_when_it_reads_on(stories: TinyPackage, others: int) -> None:
    async with running(stories) as engine:
        sequences = [engine.sequence(SamplingParams(max_tokens=40, temperature=0)) for _ in range(1 + others)]
        with (
            engine.admission.admit("", len(sequences), 9) as permit,
            pytest.raises(EngineFailed),
        ):
            async for sequence, _ in engine.run(permit, sequences):
                if sequence is sequences[0] and not sequence.is_aborted:
                    engine.scheduler.fail_all() if not others else sequence.fail()
        await until_idle(engine)

        assert sequences[0].ending == "error"


async def test_a_stream_goes_on_where_it_was_when_a_neighbour_fails(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(stories) as engine:
        whole = await ids_of(engine, GREEDY, prompt_ids=PROMPTS[0])
        poison(engine, monkeypatch)
        streamed: list[int] = []
        has_failed = False
        async for output in engine.generate(GREEDY, prompt_ids=PROMPTS[0]):
            streamed += [token.id for token in output.tokens]
            if len(streamed) >= 3 and not has_failed:
                has_failed = True
                with pytest.raises(EngineFailed):
                    await collect(engine, GREEDY, prompt_ids=[5, POISON])

    assert has_failed and streamed == whole


async def test_a_prompts_probabilities_come_once_though_a_neighbour_fails(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, prompt = SamplingParams(max_tokens=2, temperature=0, prompt_logprobs=0), [5, 40, 60, 61]
    async with running(stories) as engine:
        alone = await collect(engine, params, prompt_ids=prompt)
        poison(engine, monkeypatch)
        beside, failed = await asyncio.gather(
            collect(engine, params, prompt_ids=prompt),
            collect(engine, GREEDY, prompt_ids=[5, POISON, 9]),
            return_exceptions=True,
        )

    assert isinstance(failed, EngineFailed) and isinstance(beside, Output)
    assert len(alone.prompt) == 3 and beside.prompt == alone.prompt


async def test_a_search_fails_that_has_another_row_than_its_first_on_which_the_graphs_fail(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(stories) as engine:
        run = engine._runner._decode_step.run
        monkeypatch.setattr(engine._runner._decode_step, "run", lambda rows: 1 / 0 if 1 in rows else run(rows))
        with pytest.raises(EngineFailed):
            await collect(engine, BeamParams(max_tokens=8, beam_size=2), prompt_ids=[5])
        await until_idle(engine)


async def test_a_seeded_row_draws_the_same_beside_one_whose_choice_fails(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded = SamplingParams(max_tokens=8, temperature=1.0, seed=5)
    async with running(stories) as engine:
        alone = await ids_of(engine, seeded, prompt_ids=PROMPTS[0])
        monkeypatch.setattr(HostLogits, "search", lambda *_: 1 / 0)
        search = collect(engine, BeamParams(max_tokens=8, beam_size=2), prompt_ids=PROMPTS[2])
        beside, failed = await asyncio.gather(
            ids_of(engine, seeded, prompt_ids=PROMPTS[0]), search, return_exceptions=True
        )

    assert beside == alone and isinstance(failed, EngineFailed)


async def test_a_grammar_that_fails_on_a_token_ends_its_own_sequence_alone(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(state: ConstraintState, token: int) -> None:
        if state.constraints.repetition_penalty == 1.5:
            raise Panic

    monkeypatch.setattr(ConstraintState, "take", fails)
    seeded = SamplingParams(max_tokens=8, temperature=1.0, seed=5, constraints=Constraints(repetition_penalty=1.2))
    failing = replace(seeded, constraints=Constraints(repetition_penalty=1.5))
    async with running(stories) as engine:
        alone = await ids_of(engine, seeded, prompt_ids=PROMPTS[0])
        beside, failed = await asyncio.gather(
            ids_of(engine, seeded, prompt_ids=PROMPTS[0]),
            collect(engine, failing, prompt_ids=PROMPTS[2]),
            return_exceptions=True,
        )

    assert beside == alone and isinstance(failed, EngineFailed)


async def test_a_search_that_fails_on_what_was_chosen_for_it_ends_alone(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(state: ConstraintState, token: int) -> ConstraintState:
        raise Panic

    monkeypatch.setattr(ConstraintState, "continued", fails)
    failing = BeamParams(max_tokens=8, beam_size=2, constraints=Constraints(repetition_penalty=1.5))
    async with running(stories) as engine:
        alone = await ids_of(engine, GREEDY, prompt_ids=PROMPTS[0])
        beside, failed = await asyncio.gather(
            ids_of(engine, GREEDY, prompt_ids=PROMPTS[0]),
            collect(engine, failing, prompt_ids=PROMPTS[2]),
            return_exceptions=True,
        )
        await until_idle(engine)

        assert beside == alone and isinstance(failed, EngineFailed)
        assert engine.is_progressing(60) and await ids_of(engine, GREEDY, prompt_ids=PROMPTS[0]) == alone


async def test_a_bug_that_is_no_exception_of_pythons_leaves_nobody_waiting_either(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise Panic

    async with running(stories) as engine:
        monkeypatch.setattr(engine._reporter, "tell", fails)
        with pytest.raises(EngineFailed):
            await asyncio.wait_for(collect(engine, GREEDY, prompt_ids=[5]), 10)

        assert not engine.is_progressing(60)


async def test_a_failure_outside_the_graphs_leaves_nobody_waiting_and_is_not_healthy(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(stories, max_slots=1) as engine:
        monkeypatch.setattr(engine._reporter, "tell", lambda *_: 1 / 0)
        tasks = [collect(engine, GREEDY, prompt_ids=[5]) for _ in range(3)]
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

        assert all(isinstance(result, EngineClosed) for result in results)  # none of whom is to blame
        assert not engine.is_progressing(60)
        with pytest.raises(EngineClosed):
            await collect(engine, GREEDY, prompt_ids=[5])


async def test_an_engine_that_is_closed_tells_those_who_run_that_they_are_not_to_blame(stories: TinyPackage) -> None:
    async with running(stories, max_slots=1) as engine:
        tasks = [asyncio.create_task(collect(engine, GREEDY, prompt_ids=[5])) for _ in range(2)]
        await asyncio.sleep(0)
        await engine.close()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

    assert [type(result) for result in results] == [EngineClosed] * 2


async def test_graphs_that_can_compute_nothing_any_more_are_not_healthy(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(stories) as engine:
        monkeypatch.setattr(BoundSession, "run", lambda _: 1 / 0)
        tasks = [collect(engine, GREEDY, prompt_ids=[5, 6, 8]) for _ in range(3)]
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert all(isinstance(result, EngineFailed) for result in results)
        await asyncio.wait_for(engine._worker._loop, 10)  # type: ignore[arg-type]  # which runs, or has ended
        assert not engine.is_progressing(60)


async def test_a_model_whose_graphs_can_compute_nothing_is_not_opened(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundSession, "run", lambda _: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        async with running(stories):
            pass


async def test_a_search_that_fails_at_its_first_step_takes_off_the_rows_that_it_had(
    stories: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Step] = []
    monkeypatch.setattr(Silent, "stepped", lambda _, step: steps.append(step))
    async with running(stories) as engine:
        monkeypatch.setattr(HostLogits, "search", lambda *_: 1 / 0)
        with pytest.raises(EngineFailed):
            await collect(engine, BeamParams(max_tokens=8, beam_size=8), prompt_ids=[5])

    assert [(step.rows, step.tokens) for step in steps if step.phase == "decode"] == [(1, 0)]
