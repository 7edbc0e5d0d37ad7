"""The engine on a device's memory: by a stand-in that the processor cannot read, and on a GPU where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from model.export.device import DEVICE_GRAPHS
from service.engine import device_memory
from service.engine.arrays import View
from service.engine.beam_search import BeamParams
from service.engine.constraints import Constraints
from service.engine.decode_step import recorded_rows
from service.engine.device import GRAPHS, DeviceArray, DeviceGraphs
from service.engine.device_memory import DeviceMemory
from service.engine.engine import Engine
from service.engine.mailbox import Output
from service.engine.memory import HostMemory, MemoryShape, SlotCopy
from service.engine.providers import CUDA
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import BoundSession, Session, SessionOptions
from tests.conftest import MakePackage, TinyPackage
from tests.service.engine.test_engine import GREEDY, collect, until_idle

SHAPE = MemoryShape(arrays=4, slots=6, heads=2, length=32, width=8, dtype="float16")
HOST_INPUTS = {"total_length", "source_total_length", "count"}  # operators read them where the processor is
needs_gpu = pytest.mark.skipif(CUDA not in onnxruntime.get_available_providers(), reason="needs onnxruntime-gpu")
DEVICES = ["stand-in", pytest.param("gpu", marks=[pytest.mark.gpu, needs_gpu])]


@pytest.fixture(params=DEVICES)
def options(request: pytest.FixtureRequest) -> Iterator[SessionOptions]:
    """Yield options of sessions that keep their memory on a device."""
    if request.param == "gpu":
        yield SessionOptions(threads=1, cuda=True)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "keeps_on_device", True)
        patch.setattr(Session, "replays", True)
        for name in ("numpy", "__array__"):
            patch.setattr(onnxruntime.OrtValue, name, _refuse)
        yield SessionOptions(threads=1)


def _refuse(*_: object) -> None:
    raise AssertionError("numbers were copied from the device that have no business here")


@asynccontextmanager
async def running(package: TinyPackage, options: SessionOptions, **limits: Any) -> AsyncIterator[Engine]:
    engine = Engine(package.folder, package.manifest, options, SchedulerLimits(**limits))
    try:
        yield engine
    finally:
        await engine.close()


async def answers(
    engine: Engine, requests: Sequence[tuple[SamplingParams | BeamParams, dict[str, list[int]]]]
) -> list[Any]:
    results: list[Output] = await asyncio.gather(*(collect(engine, params, **ids) for params, ids in requests))
    await until_idle(engine)
    return [
        [[token.id for token in result.tokens], [hypothesis.ids for hypothesis in result.hypotheses]]
        for result in results
    ]


PROMPTS = [[5, 9, 100], [7], [30, 31, 32, 33, 34, 35, 36], [200, 3, 90, 12, 44], list(range(20, 60)), [8, 8], [91]]
SAMPLED = SamplingParams(max_tokens=9, temperature=0.8, top_p=0.9, seed=3)
WAYS: list[SamplingParams | BeamParams] = [
    GREEDY,
    SAMPLED,
    SamplingParams(max_tokens=7, temperature=1, top_k=5, seed=1),
    SamplingParams(max_tokens=5, temperature=0, logprobs=2),
    SamplingParams(max_tokens=8, temperature=0, constraints=Constraints(repetition_penalty=1.5)),
    BeamParams(max_tokens=8, beam_size=3, n_best=2),
    BeamParams(max_tokens=6, beam_size=2),
    BeamParams(max_tokens=6, beam_size=2, constraints=Constraints(no_repeat_ngram_size=2)),
    SamplingParams(max_tokens=4, temperature=0, logprobs=1, prompt_logprobs=2),
]


def is_drawn(params: SamplingParams | BeamParams) -> bool:
    return isinstance(params, SamplingParams) and params.temperature > 0


@pytest.mark.parametrize("name", ["stories", "translate"])
async def test_answers_are_those_of_the_processors_memory(
    make_package: MakePackage, options: SessionOptions, name: str
) -> None:
    package = make_package(name, "float16")
    given = "prompt_ids" if name == "stories" else "source_ids"
    requests = [(WAYS[index % len(WAYS)], {given: PROMPTS[index % len(PROMPTS)]}) for index in range(20)]
    limits = {"max_slots": 24, "prefill_tokens": 32, "prefix_cache_bytes": 2**16}
    async with running(package, options, **limits) as engine:
        there = [await answers(engine, requests) for _ in range(2)]  # the second finds its prompts' beginnings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "keeps_on_device", False)
        async with running(package, SessionOptions(threads=1), **limits) as engine:
            here = await answers(engine, requests)

    chosen = [index for index, (params, _) in enumerate(requests) if not is_drawn(params)]
    if options.cuda:  # its numbers are rounded elsewhere, and random weights give nearly level logits
        alike = [first[index] == here[index] for first in there for index in chosen]
        assert sum(alike) >= 0.6 * len(alike)
    else:
        assert [[first[index] for index in chosen] for first in there] == [[here[index] for index in chosen]] * 2
        assert there[0] == there[1]  # what was drawn too


async def test_logits_stay_on_the_device_where_greedy_top_k_or_beams_choose(
    make_package: MakePackage, options: SessionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("translate", "float16")
    async with running(package, options, max_slots=16, prefix_cache_bytes=0) as engine:
        for name in ("logits", "rows"):
            monkeypatch.setattr(DeviceGraphs, name, _refuse)
        ways = [GREEDY, WAYS[2], WAYS[3], BeamParams(max_tokens=8, beam_size=4)]
        results = await answers(engine, [(way, {"source_ids": ids}) for way in ways for ids in PROMPTS[:3]])

    assert all(tokens or hypotheses for tokens, hypotheses in results)


async def test_a_step_reads_and_writes_the_device_alone(
    make_package: MakePackage, options: SessionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("translate", "float16")
    async with running(package, options, max_slots=16) as engine:
        await collect(engine, GREEDY, source_ids=PROMPTS[0])
        bind = BoundSession.bind
        seen: list[str] = []

        def noting(self: BoundSession, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
            seen.extend(name for name, bound in {**inputs, **outputs}.items() if not isinstance(bound, View))
            bind(self, inputs, outputs)

        monkeypatch.setattr(BoundSession, "bind", noting)
        engine._runner._decode_step._bind_rows(engine._runner._decoder.bound(), 0, 4)

    assert set(seen) <= HOST_INPUTS


async def test_a_rest_gives_back_nothing_that_recorded_steps_need(
    make_package: MakePackage, options: SessionOptions
) -> None:
    package = make_package("stories", "float16")
    async with running(package, options, max_slots=16) as engine:
        requests = [(way, {"prompt_ids": ids}) for way, ids in zip(WAYS, PROMPTS, strict=False)]
        before = await answers(engine, requests)
        engine._runner.rest()

        assert await answers(engine, requests) == before


def test_a_recording_is_made_for_few_numbers_of_rows() -> None:
    rows = [recorded_rows(rows) for rows in range(1, 257)]

    assert all(recorded >= needed for needed, recorded in enumerate(rows, start=1))
    assert sorted(set(rows))[:6] == [1, 2, 4, 8, 16, 24] and len(set(rows)) == 35


@pytest.fixture
def memories(options: SessionOptions) -> tuple[DeviceMemory, HostMemory]:
    """Return a device's memory and the processor's, of the same shape and with the same tokens."""
    device = "cuda" if options.cuda else "cpu"
    there, here = DeviceMemory(SHAPE, DeviceGraphs(options, device), device), HostMemory(SHAPE)
    rng = np.random.default_rng(0)
    for slot in range(SHAPE.slots):
        tokens = list(rng.standard_normal((SHAPE.arrays, SHAPE.heads, 20, SHAPE.width)).astype(np.float16))
        for memory in (there, here):
            memory.write(slot, 0, tokens)
    return there, here


def test_tokens_are_copied_where_they_belong_and_nothing_else_is_touched(
    memories: tuple[DeviceMemory, HostMemory],
) -> None:
    copies = [SlotCopy(0, 3, 0, 20), SlotCopy(1, 4, 5, 9), SlotCopy(0, 5, 19, 20)]
    for memory in memories:
        memory.copy(copies)
        memory.write(2, 7, [np.ones((SHAPE.heads, 3, SHAPE.width), np.float16)] * SHAPE.arrays)

    for slot in range(SHAPE.slots):
        there, here = (memory.read(slot, 0, 20) for memory in memories)
        np.testing.assert_array_equal(there, here)


def test_many_copies_are_done_in_pieces_so_that_they_take_no_more_memory_than_one(
    memories: tuple[DeviceMemory, HostMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    move = DeviceGraphs.move

    def noting(self: DeviceGraphs, source: View, origins: Any, target: View, targets: Any) -> None:
        moved.append(len(origins))
        move(self, source, origins, target, targets)

    monkeypatch.setattr(DeviceGraphs, "move", noting)
    monkeypatch.setattr(device_memory, "PIECE_BYTES", 50 * SHAPE.head_bytes)
    for memory in memories:
        memory.copy([SlotCopy(0, 3, 0, 20), SlotCopy(1, 4, 5, 9), SlotCopy(2, 5, 4, 4)])

    assert moved == [50, 50, 50, 42]
    for slot in (3, 4, 5):
        there, here = (memory.read(slot, 0, 20) for memory in memories)
        np.testing.assert_array_equal(there, here)


async def test_a_step_that_fails_while_it_is_recorded_is_run_again_and_never_replayed(
    make_package: MakePackage, options: SessionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("stories", "float16")
    async with running(package, options, max_slots=16) as engine:
        requests = [(GREEDY, {"prompt_ids": ids}) for ids in PROMPTS[:3]]
        before = await answers(engine, requests)
        run, recorded = BoundSession.run, []

        def failing(self: BoundSession, recorded_as: int | None = None) -> None:
            if recorded_as is not None:
                recorded.append(recorded_as)
                raise RuntimeError("the device has no memory left")
            run(self, recorded_as)

        monkeypatch.setattr(BoundSession, "run", failing)

        assert await answers(engine, requests) == before
        assert sorted(recorded) == sorted(set(recorded))  # each number of rows was tried once


def test_memory_that_the_device_has_not_is_an_error_that_says_what_to_lower(options: SessionOptions) -> None:
    device = "cuda" if options.cuda else "cpu"
    shape = MemoryShape(arrays=2**10, slots=1024, heads=64, length=2**17, width=64, dtype="float16")
    with pytest.raises(MemoryError, match=r"(?s)1024 slots × 131072 tokens is taken whole.*lower max_slots or max_pos"):
        DeviceMemory(shape, DeviceGraphs(options, device), device)


def test_rows_of_logits_come_back_as_numbers_to_draw_from(options: SessionOptions) -> None:
    device = "cuda" if options.cuda else "cpu"
    graphs, values = DeviceGraphs(options, device), np.random.default_rng(0).standard_normal((5, 300))
    there = DeviceArray.of(values.astype(np.float16), device)

    np.testing.assert_array_equal(graphs.logits(there.view(), np.array([4, 1])), values.astype(np.float16)[[4, 1]])
    np.testing.assert_array_equal(graphs.likeliest(there.view()), values.astype(np.float16).argmax(-1))


@pytest.mark.parametrize("name", DEVICE_GRAPHS)
def test_the_graphs_beside_the_engine_are_those_that_the_exporter_makes(name: str, tmp_path: Path) -> None:
    DEVICE_GRAPHS[name]().save(tmp_path / f"{name}.onnx")
    made, kept = onnx.load(tmp_path / f"{name}.onnx"), onnx.load(GRAPHS / f"{name}.onnx")

    assert made.graph == kept.graph and made.opset_import == kept.opset_import
