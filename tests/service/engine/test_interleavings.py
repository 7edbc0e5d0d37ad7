"""Whatever joins and leaves beside it, a sequence gets the answer that it gets alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.package.manifest import Precision
from service.engine import drafting, shares
from service.engine.beam_search import BeamParams
from service.engine.constraints import Constraints
from service.engine.engine import Engine
from service.engine.mailbox import Output
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from tests.conftest import MakePackage, TinyPackage

MAX_SLOTS = 6
BEGINNING = [7 + index % 50 for index in range(40)]  # shared by many prompts


@dataclass(frozen=True)
class Visit:
    """One sequence: whose it is, what it asks, when it comes, and after how many outputs it leaves."""

    client: str
    ids: tuple[int, ...]
    params: SamplingParams | BeamParams
    delay: int  # turns of the event loop
    patience: int | None


CONSTRAINTS = st.builds(
    Constraints,
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    no_repeat_ngram_size=st.sampled_from([0, 0, 2]),
    min_tokens=st.sampled_from([0, 0, 3]),
    suppress_ids=st.sampled_from([frozenset(), frozenset({7, 30})]),
    bad_words=st.sampled_from([(), ((5, 9), (8,))]),
    forced_end=st.sampled_from([None, 2]),
    renormalize=st.booleans(),
)
SAMPLING = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 8),
    temperature=st.sampled_from([0.0, 0.9]),
    top_k=st.sampled_from([0, 5]),
    constraints=CONSTRAINTS,
    seed=st.integers(0, 3),
    logprobs=st.just(1),
    prompt_logprobs=st.sampled_from([None, None, 1]),
)
SEARCH = st.builds(
    BeamParams,
    max_tokens=st.integers(1, 8),
    beam_size=st.integers(1, 4),
    n_best=st.integers(1, 2),
    early_stopping=st.sampled_from([True, False]),
    constraints=CONSTRAINTS,
)
PROMPTS = st.one_of(
    st.lists(st.integers(3, 200), min_size=1, max_size=24),
    st.builds(lambda cut, tail: BEGINNING[:cut] + tail, st.integers(14, 40), st.lists(st.integers(3, 200), max_size=6)),
    st.just([*BEGINNING, *BEGINNING][:60]),  # long, and several may come with it
).map(tuple)
VISITS = st.lists(
    st.builds(
        Visit,
        client=st.sampled_from(["a", "b"]),
        ids=PROMPTS,
        params=SAMPLING | SEARCH,
        delay=st.integers(0, 30),
        patience=st.sampled_from([None, None, 1, 3]),
    ),
    min_size=1,
    max_size=10,
)


@dataclass
class Engines:
    """One that serves all visits of all examples, and one that serves a visit at a time and remembers nothing."""

    crowded: Engine
    lonely: Engine
    ids: str  # what they are asked with: prompt_ids or source_ids


MakeEngines = Callable[..., Engines]


@pytest.fixture(scope="module", autouse=True)
def hardly_any_patience() -> Iterator[None]:
    """Let clients rest after steps as short as a tiny model's, and let there be drafts in these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafting, "LEAST_STEP_S", 0.0)
        patch.setattr(drafting, "COST_RATE", 0.0)
        patch.setattr(shares, "AHEAD_S", 0.0005)
        patch.setattr(shares, "CREDIT_S", 0.005)
        yield


@pytest.fixture(scope="module")
def make_engines(make_package: MakePackage) -> Iterator[MakeEngines]:
    made: dict[tuple[str, Precision, bool], Engines] = {}

    def engine(package: TinyPackage, cached_bytes: int, half_cache: bool) -> Engine:
        # Chunks are small, so that prompts take several; the prefix cache holds but a few blocks.
        limits = SchedulerLimits(max_slots=MAX_SLOTS, prefill_tokens=16, prefix_cache_bytes=cached_bytes)
        options = SessionOptions(threads=1, half_cache=half_cache)
        return Engine(package.folder, package.manifest, options, limits)

    def make(name: str, precision: Precision, half_cache: bool = False) -> Engines:
        key = (name, precision, half_cache)
        if key not in made:
            package = make_package(name, precision)
            made[key] = Engines(
                engine(package, 2**15, half_cache),
                engine(package, 0, half_cache),
                "source_ids" if name.endswith("translate") else "prompt_ids",
            )
        return made[key]

    yield make
    for engines in made.values():
        asyncio.run(engines.crowded.close())
        asyncio.run(engines.lonely.close())


async def answer(engine: Engine, ids: str, visit: Visit, patience: int | None = None) -> Output:
    """Return all of an answer, or what came before the reader left."""
    merged, taken = Output(), 0
    sequence = engine.sequence(visit.params, **{ids: list(visit.ids)})
    with engine.admission.admit(visit.client, sequence.width, sequence.waiting_tokens) as permit:
        async with aclosing(engine.run(permit, [sequence])) as outputs:
            async for _, output in outputs:
                tokens, prompt = [*merged.tokens, *output.tokens], [*merged.prompt, *output.prompt]
                merged = Output(tokens, output.finish_reason, output.hypotheses, prompt)
                taken += 1
                engine.scheduler.check_integrity()
                if taken == patience:
                    break
    return merged


async def answers(engines: Engines, visits: list[Visit]) -> tuple[list[Output], list[Output]]:
    """Return the visits' answers together, and alone."""

    async def visit(one: Visit) -> Output:
        for _ in range(one.delay):
            await asyncio.sleep(0)
        return await answer(engines.crowded, engines.ids, one, one.patience)

    together = await asyncio.gather(*(visit(one) for one in visits))
    await balance(engines.crowded)
    return together, [await answer(engines.lonely, engines.ids, one) for one in visits]


async def balance(engine: Engine) -> None:
    """Wait until the engine is idle, and see that nothing is left in queue and slots."""
    async with asyncio.timeout(60):
        while engine.scheduler.running or engine.scheduler.waiting_sequences:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.001)
    engine.scheduler.check_integrity()
    engine.scheduler.prefix_cache.check_integrity()
    assert engine.scheduler.slots_used == engine.admission.waiting_slots == engine.admission.waiting_tokens == 0


def begins(whole: Output, part: Output, visit: Visit) -> bool:
    if visit.patience is None:
        return part == whole
    return part.tokens == whole.tokens[: len(part.tokens)] and part.prompt in ([], whole.prompt)


@pytest.mark.parametrize(
    ("name", "half_cache"),
    [
        ("stories", False),
        ("translate", False),
        # Heads as wide as those of real models have an attention of their own, drafts, and a cache of 16 bits.
        ("wide_stories", False),
        ("wide_stories", True),
        ("wide_translate", False),
        ("wide_translate", True),
    ],
)
@settings(max_examples=30)
@given(visits=VISITS)
def test_integer_answers_are_the_same_together_as_alone_to_the_last_bit(
    make_engines: MakeEngines, name: str, half_cache: bool, visits: list[Visit]
) -> None:
    together, alone = asyncio.run(answers(make_engines(name, "int8", half_cache), visits))

    for visit, part, whole in zip(visits, together, alone, strict=True):
        assert begins(whole, part, visit), visit


@pytest.mark.parametrize("name", ["stories", "translate"])
@settings(max_examples=12)
@given(visits=VISITS)
def test_float_answers_are_the_same_together_as_alone_but_for_rounding(
    make_engines: MakeEngines, name: str, visits: list[Visit]
) -> None:
    together, alone = asyncio.run(answers(make_engines(name, "float32"), visits))

    for visit, part, whole in zip(visits, together, alone, strict=True):
        assert visit.patience is not None or len(part.tokens) == len(whole.tokens), visit
        assert [token.id for token in part.tokens] == [token.id for token in whole.tokens[: len(part.tokens)]], visit
        for one, other in zip(part.tokens, whole.tokens, strict=False):
            assert one.logprob == other.logprob or abs((one.logprob or 0) - (other.logprob or 0)) < 1e-5
