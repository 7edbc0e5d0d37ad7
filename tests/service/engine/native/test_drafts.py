"""Drafts make steps fewer, and change no answer: not a token, not a bit of a log probability."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from model.package.manifest import Precision
from service.engine import choosing, drafting
from service.engine.beam_search import BeamParams
from service.engine.constraints import Constraints
from service.engine.decode_step import DecodeStep
from service.engine.drafting import Lookup
from service.engine.engine import Engine
from service.engine.mailbox import Output
from service.engine.observer import Silent, Step
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from service.models_file import ModelSettings
from service.settings import Limits
from service.tasks.loading import load_task
from tests.conftest import MakePackage, TinyPackage
from tests.service.engine.native.machine import needs_instructions

pytestmark = needs_instructions

PROMPTS = [[5, 9, 100, 8, 5, 9, 100], [7], [30, 31, 32, 33, 34, 35, 36], [200, 3, 90, 12, 44]]
GREEDY = SamplingParams(max_tokens=40, temperature=0, logprobs=2)
DRAWN = SamplingParams(max_tokens=40, temperature=1.3, logprobs=1, seed=11)
Answer = list[tuple[int, float | None]]


@pytest.fixture(autouse=True)
def _short_steps_have_drafts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "LEAST_STEP_S", 0.0)
    monkeypatch.setattr(drafting, "COST_RATE", 0.0)  # however long single steps take here


class Steps(Silent):
    """Keeps what it is told of steps."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def stepped(self, step: Step) -> None:
        self.steps.append(step)

    @property
    def decodes(self) -> list[Step]:
        return [step for step in self.steps if step.phase == "decode"]


@asynccontextmanager
async def running(
    package: TinyPackage, observer: Silent | None = None, options: SessionOptions | None = None, **limits: Any
) -> AsyncIterator[Engine]:
    limits = {"max_slots": 8, **limits}
    options = options or SessionOptions(threads=1)
    engine = Engine(package.folder, package.manifest, options, SchedulerLimits(**limits), observer)
    try:
        yield engine
    finally:
        await engine.close()


async def outputs_of(engine: Engine, params: SamplingParams | BeamParams, prompt: list[int]) -> list[Output]:
    async with asyncio.timeout(60):  # a sequence that has lost its end would go on for ever
        return [output async for output in engine.generate(params, prompt_ids=prompt)]


async def answer(engine: Engine, params: SamplingParams, prompt: list[int]) -> Answer:
    """Return an answer to a prompt, or to a source where the engine takes one."""
    given = {"source_ids" if engine._runner.cache.has_cross else "prompt_ids": prompt}
    async with asyncio.timeout(60):
        outputs = [output async for output in engine.generate(params, **given)]
    return [(token.id, token.logprob) for output in outputs for token in output.tokens]


def guess(answers: list[Answer], monkeypatch: pytest.MonkeyPatch, right: float) -> None:
    """Let drafts be what will come of `PROMPTS`, each token of them with this probability, and else another."""
    rng = random.Random(3)
    coming_of = {tuple(ids): [token for token, _ in answer] for ids, answer in zip(PROMPTS, answers, strict=False)}

    def draft(lookup: Lookup, most: int, least: float) -> list[int]:
        ids = tuple(lookup._prompt_ids)  # or a source, and behind it the start
        coming = coming_of[ids if ids in coming_of else ids[:-1]][len(lookup._output_ids) :]
        guessed = [token if rng.random() < right else (token + 1) % 50 for token in coming]
        return guessed[: min(most, rng.randrange(8))]

    monkeypatch.setattr(Lookup, "draft", draft)


async def guessed(package: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Return what is drawn behind the first prompt without drafts, and let these be right."""
    async with running(package, has_drafts=False) as plain:
        expected = await answer(plain, DRAWN, PROMPTS[0])
    guess([expected], monkeypatch, 1.0)
    return expected


@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
@pytest.mark.parametrize("params", [GREEDY, DRAWN, replace(DRAWN, top_p=0.9), replace(DRAWN, top_k=5)])
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("wide_stories", 0.0),
        ("wide_stories", 0.6),
        ("wide_stories", 1.0),
        ("falling_stories", 0.6),
        ("wide_translate", 0.6),
    ],
)
async def test_whatever_is_guessed_answers_are_the_same_to_the_last_bit(
    make_package: MakePackage,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    params: SamplingParams,
    right: float,
    half_cache: bool,
) -> None:
    package, options = make_package(name, "int8"), SessionOptions(threads=1, half_cache=half_cache)
    async with running(package, options=options, has_drafts=False) as plain:
        expected = [await answer(plain, params, prompt) for prompt in PROMPTS]
    guess(expected, monkeypatch, right)
    steps = Steps()
    async with running(package, steps, options) as engine:
        alone = [await answer(engine, params, prompt) for prompt in PROMPTS]
        together = await asyncio.gather(*(answer(engine, params, prompt) for prompt in PROMPTS))

    assert alone == expected
    assert together == expected
    drafted, accepted = sum(step.drafted for step in steps.decodes), sum(step.accepted for step in steps.decodes)
    assert drafted > 0 and (accepted > 0) == (right > 0) and (accepted == drafted) == (right == 1)
    assert sum(step.tokens for step in steps.decodes) == 2 * sum(map(len, expected))


async def test_text_that_repeats_itself_takes_fewer_steps(make_package: MakePackage) -> None:
    package = make_package("wide_stories", "int8")
    steps, plain_steps = Steps(), Steps()
    params = replace(GREEDY, max_tokens=100)  # an untrained model soon goes round in circles
    async with running(package, plain_steps, has_drafts=False) as plain, running(package, steps) as engine:
        assert await answer(engine, params, PROMPTS[0]) == await answer(plain, params, PROMPTS[0])

    assert len(plain_steps.decodes) == 100
    assert len(steps.decodes) < 60


async def test_a_stop_within_a_draft_ends_the_output_there(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("wide_stories", "int8")
    expected = await guessed(package, monkeypatch)
    tokens = [token for token, _ in expected]
    place = next(place for place in range(5, 40) if tokens[place] not in tokens[:place])
    async with running(package) as engine:
        outputs = await outputs_of(engine, replace(DRAWN, stop_ids=frozenset({tokens[place]})), PROMPTS[0])

    assert [token.id for output in outputs for token in output.tokens] == tokens[:place]
    assert outputs[-1].finish_reason == "stop"


async def test_constrained_sequences_and_searches_have_no_drafts_and_others_beside_them_do(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("wide_stories", "int8")
    constrained = replace(GREEDY, constraints=Constraints(repetition_penalty=1.2))
    search = BeamParams(max_tokens=20, beam_size=2)
    async with running(package, has_drafts=False) as plain:
        expected = await answer(plain, GREEDY, PROMPTS[0])
        penalized = await answer(plain, constrained, PROMPTS[0])
        searched = (await outputs_of(plain, search, PROMPTS[2]))[-1].hypotheses
    guess([expected], monkeypatch, 0.7)
    steps = Steps()
    async with running(package, steps) as engine:
        both = await asyncio.gather(
            answer(engine, GREEDY, PROMPTS[0]),
            answer(engine, constrained, PROMPTS[0]),
            outputs_of(engine, search, PROMPTS[2]),
        )

    assert (both[0], both[1], both[2][-1].hypotheses) == (expected, penalized, searched)
    assert any(step.drafted for step in steps.decodes)


@pytest.mark.parametrize("max_slots", [1, 8])
async def test_sequences_that_come_and_go_leave_the_cache_as_without_drafts(
    make_package: MakePackage, max_slots: int
) -> None:
    package = make_package("wide_stories", "int8")
    prompts = [[5 + i, 9, 100 + i] * (1 + i % 4) for i in range(12)]
    async with running(package, has_drafts=False) as plain:
        expected = [await answer(plain, GREEDY, prompt) for prompt in prompts]
    async with running(package, max_slots=max_slots) as engine:

        async def ask(place: int) -> Answer:
            await asyncio.sleep(0.01 * place)
            return await answer(engine, GREEDY, prompts[place])

        assert await asyncio.gather(*map(ask, range(12))) == expected


async def test_a_step_that_fails_with_drafts_is_run_without(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("wide_stories", "int8")
    expected = await guessed(package, monkeypatch)

    def fail(step: DecodeStep) -> None:
        raise RuntimeError("made up")

    monkeypatch.setattr(DecodeStep, "run_with_drafts", fail)
    async with running(package) as engine:
        assert await answer(engine, DRAWN, PROMPTS[0]) == expected


async def test_what_cannot_be_chosen_of_a_draft_is_computed_in_a_step_of_its_own(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("wide_stories", "int8")
    expected = await guessed(package, monkeypatch)
    sample = choosing._Behind.sample

    def fail_behind_the_first(self: Any, slots: Any, rows: Any) -> Any:
        if self._behind:
            raise RuntimeError("made up")
        return sample(self, slots, rows)

    monkeypatch.setattr(choosing._Behind, "sample", fail_behind_the_first)
    steps = Steps()
    async with running(package, steps) as engine:
        assert await answer(engine, DRAWN, PROMPTS[0]) == expected
    assert not any(step.accepted for step in steps.decodes)


@pytest.mark.parametrize(
    ("precision", "settings", "has_drafts"),
    [
        ("int8", {}, True),
        ("int8", {"prompt_lookup": False}, False),
        ("float32", {}, False),
        ("float32", {"exact": False}, True),
    ],
)
async def test_a_model_has_drafts_where_they_change_no_answer_or_may(
    make_package: MakePackage, precision: Precision, settings: dict[str, bool], has_drafts: bool
) -> None:
    model = ModelSettings(package=make_package("wide_stories", precision).folder, threads=1, **settings)
    task = load_task(model, Limits())
    try:
        (engine,) = [each for each in vars(task).values() if isinstance(each, Engine)]
        assert engine.scheduler._has_drafts == has_drafts
    finally:
        await task.close()


@pytest.mark.parametrize(("name", "native"), [("stories", True), ("wide_stories", False)])
async def test_where_the_graph_cannot_there_are_no_drafts(make_package: MakePackage, name: str, native: bool) -> None:
    async with running(make_package(name), options=SessionOptions(1, native=native)) as engine:
        assert not engine._runner.takes_drafts
