"""Generators and translators whose attention is our own, with caches of 32 and of 16 bits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import numpy as np
import pytest

from model.package import PackageError
from model.package.manifest import Precision
from service.engine import session as sessions
from service.engine.beam_search import BeamParams, Hypothesis
from service.engine.decode_step import DecodeStep
from service.engine.engine import Engine
from service.engine.kv_cache import bytes_of_longest
from service.engine.memory import HostMemory
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.sequence import Sequence
from service.engine.session import SessionOptions
from service.models_file import ModelSettings
from service.settings import Limits
from service.tasks import kv_budget
from service.tasks.kv_budget import check_kv_cache, fitting_positions, kv_capacity_bytes
from service.tasks.loading import load_task
from tests.conftest import MakePackage, TinyPackage
from tests.service.engine.native.machine import needs_instructions

Answer = list[tuple[int, float | None]]
PARAMS = SamplingParams(max_tokens=20, temperature=0, logprobs=0)
IDS = [[5, 6, 7, 8, 9], list(range(20, 55)), [100], list(range(5, 100, 3))]


@asynccontextmanager
async def running(package: TinyPackage, options: SessionOptions, **limits: Any) -> AsyncIterator[Engine]:
    engine = Engine(package.folder, package.manifest, options, SchedulerLimits(max_slots=16, **limits))
    try:
        yield engine
    finally:
        await engine.close()


async def answer(engine: Engine, package: TinyPackage, ids: list[int]) -> Answer:
    given = {"source_ids" if package.manifest.task == "translate" else "prompt_ids": ids}
    outputs = [output async for output in engine.generate(PARAMS, **given)]
    return [(token.id, token.logprob) for output in outputs for token in output.tokens]


@needs_instructions
@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
@pytest.mark.parametrize("name", ["wide_stories", "falling_stories", "wide_translate"])
async def test_answers_are_near_those_of_the_runtimes_attention(
    make_package: MakePackage, name: str, half_cache: bool
) -> None:
    package = make_package(name)
    async with (
        running(package, SessionOptions(1, native=False)) as plain,
        running(package, SessionOptions(1, half_cache=half_cache)) as own,
    ):
        assert own._runner._decoder.has_half_cache == half_cache
        assert own._runner.cache.bytes_per_token * (2 if half_cache else 1) == plain._runner.cache.bytes_per_token
        for ids in IDS:
            (token, logprob), *_ = await answer(own, package, ids)
            (expected, expected_logprob), *_ = await answer(plain, package, ids)
            assert token == expected
            assert logprob == pytest.approx(expected_logprob, abs=0.02 if half_cache else 1e-4)


@needs_instructions
@pytest.mark.parametrize("precision", ["float32", "int8", "int8-static"])
@pytest.mark.parametrize("name", ["wide_stories", "falling_stories", "wide_translate"])
async def test_with_a_cache_of_16_bits_answers_do_not_depend_on_company(
    make_package: MakePackage, name: str, precision: Precision
) -> None:
    package = make_package(name, precision)
    async with running(package, SessionOptions(2, half_cache=True)) as engine:
        alone = [await answer(engine, package, ids) for ids in IDS]
        together = await asyncio.gather(*(answer(engine, package, ids) for ids in IDS))

    assert list(together) == alone


@needs_instructions
@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
@pytest.mark.parametrize("name", ["wide_stories", "falling_stories", "wide_translate"])
async def test_slots_between_which_others_rest_are_one_run_and_the_same_to_the_last_bit(
    make_package: MakePackage, name: str, half_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(name, "int8")
    beams = BeamParams(max_tokens=12, beam_size=3)
    given = {"source_ids" if package.manifest.task == "translate" else "prompt_ids": IDS[1]}
    run, runs = DecodeStep.run, list[int]()
    run_some = DecodeStep._run_some

    def by_turns(self: DecodeStep, slots: list[int]) -> list[None]:
        """Run every second slot, and then those between."""
        for part in (slots[::2], slots[1::2]):
            if part:
                run(self, part)
        return [None] * len(slots)

    def counted(self: DecodeStep, slots: Any) -> None:
        runs.append(len(slots))
        run_some(self, slots)

    async def everyone(engine: Engine) -> list[Any]:
        async def search() -> list[Hypothesis]:
            return [*[output async for output in engine.generate(beams, **given)][-1].hypotheses]

        return await asyncio.gather(search(), *(answer(engine, package, ids) for ids in IDS))

    async with running(package, SessionOptions(1, half_cache=half_cache)) as engine:
        together = await everyone(engine)
        monkeypatch.setattr(DecodeStep, "run", by_turns)
        monkeypatch.setattr(DecodeStep, "_run_some", counted)
        assert await everyone(engine) == together

    assert max(runs) > 1


@needs_instructions
async def test_beams_part_and_end_with_a_cache_of_16_bits(make_package: MakePackage) -> None:
    package = make_package("wide_translate")
    params = BeamParams(max_tokens=12, beam_size=4)
    async with running(package, SessionOptions(1, half_cache=True)) as engine:
        outputs = [output async for output in engine.generate(params, source_ids=IDS[1])]

    assert outputs[-1].finish_reason in {"stop", "length"} and outputs[-1].hypotheses


@needs_instructions
async def test_beams_read_the_source_of_their_first_slot_alone_and_change_no_bit(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("wide_translate", "int8")
    params = [BeamParams(max_tokens=12, beam_size=size) for size in (4, 2, 3)]
    feed, spoilt = DecodeStep.feed, set[int]()

    def feed_and_spoil(self: DecodeStep, sequences: list[Sequence], slots_in_use: int) -> list[int]:
        """Spoil the sources of all slots of a search but its first."""
        assert isinstance(self._cache._cross, HostMemory)
        for sequence in sequences:
            for slot in set(sequence.slots) - {min(sequence.slots)}:
                self._cache._cross._values[:, slot] = np.nan
                spoilt.add(slot)
        return feed(self, sequences, slots_in_use)

    async def searched(engine: Engine) -> list[list[Hypothesis]]:
        async def search(params: BeamParams, ids: list[int]) -> list[Hypothesis]:
            return [*[output async for output in engine.generate(params, source_ids=ids)][-1].hypotheses]

        return await asyncio.gather(*map(search, params, IDS))

    async with running(package, SessionOptions(2)) as engine:
        monkeypatch.setattr(engine._runner._decode_step, "_source_slots", None)
        expected = await searched(engine)
    monkeypatch.setattr(DecodeStep, "feed", feed_and_spoil)
    async with running(package, SessionOptions(2)) as engine:
        assert await searched(engine) == expected
    assert len(spoilt) >= 6


@needs_instructions
@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
async def test_a_known_beginning_of_a_prompt_changes_no_bit(make_package: MakePackage, half_cache: bool) -> None:
    package = make_package("wide_stories", "int8-static")
    async with running(package, SessionOptions(2, half_cache=half_cache)) as engine:
        first = await answer(engine, package, IDS[1])
        again = await answer(engine, package, IDS[1])
        assert engine.scheduler.prefix_cache.hit_tokens > 0

    assert again == first


@needs_instructions
@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
async def test_a_prompt_in_chunks_is_the_same_to_the_last_bit_as_whole(
    make_package: MakePackage, half_cache: bool
) -> None:
    package = make_package("wide_stories", "int8-static")
    options = SessionOptions(2, half_cache=half_cache)
    async with running(package, options) as whole, running(package, options, prefill_tokens=9) as in_chunks:
        for ids in IDS:
            assert await answer(whole, package, ids) == await answer(in_chunks, package, ids)


@needs_instructions
@pytest.mark.parametrize(
    ("precision", "dtype", "is_half"),
    [
        ("int8", "auto", True),
        ("int8", "float32", False),
        ("int8-static", "auto", True),
        ("int8-blocks", "auto", True),
        ("float32", "auto", False),
        ("float32", "float16", True),
    ],
)
async def test_a_cache_has_16_bits_where_products_round_to_integers_or_where_the_models_file_says_so(
    make_package: MakePackage, precision: Precision, dtype: Literal["auto", "float16", "float32"], is_half: bool
) -> None:
    folder = make_package("wide_stories", precision).folder
    task = load_task(ModelSettings(package=folder, threads=1, kv_cache_dtype=dtype), Limits())
    engine = task._engine
    assert isinstance(engine, Engine)

    assert engine.has_half_cache == is_half
    await task.close()


def test_a_package_of_16_bits_cannot_have_a_cache_of_32(make_package: MakePackage) -> None:
    settings = ModelSettings(package=make_package("wide_stories", "float16").folder, kv_cache_dtype="float32")

    with pytest.raises(PackageError, match="kv_cache_dtype is float32, but a package of float16 keeps"):
        load_task(settings, Limits())


@needs_instructions
async def test_a_cache_of_16_bits_fits_where_one_of_32_does_not(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("wide_stories", "int8")
    half = ModelSettings(package=package.folder, threads=1)
    whole = half.model_copy(update={"kv_cache_dtype": "float32"})
    fitting = bytes_of_longest(package.manifest, is_half=True)
    assert 2 * fitting == bytes_of_longest(package.manifest)
    monkeypatch.setattr(kv_budget, "_allowed_bytes", lambda _: fitting)

    for settings in (whole, half.model_copy(update={"native": False})):
        with pytest.raises(PackageError, match="raise kv_cache_mib"):
            check_kv_cache(settings, package.manifest)
    check_kv_cache(half, package.manifest)
    assert kv_capacity_bytes(half, package.manifest) == fitting
    assert fitting_positions(half, package.manifest) is None
    monkeypatch.setattr(kv_budget, "runs_on_device", lambda _: True)
    on_device = whole.model_copy(update={"num_gpus": 1.0})
    assert fitting_positions(on_device, package.manifest) is None  # where all that is asked for is taken
    fallen_back = on_device.model_copy(update={"cpu_fallback": True})  # which is known only once a session is open
    assert fitting_positions(fallen_back, package.manifest) == package.manifest.limits.max_positions // 2
    monkeypatch.undo()
    monkeypatch.setattr(kv_budget, "_allowed_bytes", lambda _: fitting)
    monkeypatch.setattr(sessions, "native_library", lambda: None)
    with pytest.raises(PackageError, match="raise kv_cache_mib"):
        load_task(half, Limits())
    monkeypatch.setattr(kv_budget, "native_library", lambda: None)
    with pytest.raises(PackageError, match="raise kv_cache_mib"):
        check_kv_cache(half, package.manifest)


@pytest.mark.parametrize("dtype", ["auto", "float16"])
async def test_without_our_operators_a_cache_has_32_bits_and_the_log_says_so_if_16_were_asked_for(
    make_package: MakePackage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    dtype: Literal["auto", "float16"],
) -> None:
    monkeypatch.setattr(sessions, "native_library", lambda: None)
    package = make_package("wide_stories", "int8")
    task = load_task(ModelSettings(package=package.folder, threads=1, kv_cache_dtype=dtype), Limits())
    engine = task._engine
    assert isinstance(engine, Engine)

    assert not engine.has_half_cache
    assert await answer(engine, package, IDS[0])
    assert ("stories: keys and values are kept in 32 bits" in caplog.text) == (dtype == "float16")
    await task.close()
