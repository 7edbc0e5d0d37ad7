"""The workloads of `bench_engine`: how both sides do the same work, as pairs of coroutines that return a figure."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from loadtests.bench_models import BenchModels
from loadtests.machine import ROOT
from model.package import Manifest
from service.engine.admission import AdmissionLimits
from service.engine.beam_search import BeamParams
from service.engine.engine import Engine
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from service.machine import usable_cores

THREADS = usable_cores()
# Random weights say the same again and again, which drafts would guess: `bench_drafts` measures these.
LIMITS = SchedulerLimits(max_slots=256, prefill_tokens=4096, prefix_cache_bytes=0, has_drafts=False)
ADMISSION = AdmissionLimits(max_waiting_slots=10_000, max_waiting_tokens=1_000_000)
NEW_TOKENS = 48  # of a generation
GREEDY = SamplingParams(NEW_TOKENS, temperature=0)
SENTENCE = 24  # tokens of a source and of its translation
PACKAGES = ROOT / "model" / "packages"  # that come with the project
STORIES = PACKAGES / "stories"
WINDOW = 32  # sentences of a batch of the peer, at most


@dataclass(frozen=True)
class Sides:
    """Two measurements of the same work."""

    ours: Callable[[], Awaitable[float]]
    peer: Callable[[], Awaitable[float]]


Workload = Callable[[BenchModels, float], AbstractAsyncContextManager[Sides]]


class Missing(Exception):
    """A peer is not to be had here; the message says why, as the end of a sentence."""


def random_ids(rng: np.random.Generator, length: int) -> list[int]:
    """Return ids that every model here has, and none that is special."""
    ids: list[int] = rng.integers(100, 30_000, length).tolist()
    return ids


def words(rows: list[list[int]]) -> list[list[str]]:
    """Return ids as the words that CTranslate2 wants."""
    return [[f"t{token}" for token in row] for row in rows]


def engine_for(models: BenchModels, package: Path) -> AbstractAsyncContextManager[Engine]:
    """Open a package's engine as its models are to be run."""
    return engine_of(package, SessionOptions(THREADS, half_cache=models.half_cache))


@asynccontextmanager
async def engine_of(
    package: Path, options: SessionOptions = SessionOptions(THREADS), limits: SchedulerLimits = LIMITS
) -> AsyncGenerator[Engine, None]:
    """Open a package's engine."""
    engine = Engine(package, Manifest.load(package), options, limits, admission=ADMISSION)
    try:
        yield engine
    finally:
        await engine.close()


async def repeated(seconds: float, run: Callable[[], float | Awaitable[float]]) -> float:
    """Return the median of a measurement repeated for so long, at least once."""
    end = time.perf_counter() + seconds
    values: list[float] = []
    while not values or time.perf_counter() < end:
        value = run()
        values.append(await value if isinstance(value, Awaitable) else value)
    return median(values)


def of_same_turns(seconds: float, measure: Callable[[], Awaitable[tuple[float, float]]]) -> Sides:
    """Return sides whose figures are of the same turns, and so is what neighbours took; the peer only tells its own."""
    peers: list[float] = []

    async def once() -> float:
        ours, peer = await measure()
        peers.append(peer)
        return ours

    async def ours() -> float:
        peers.clear()
        return await repeated(seconds, once)

    async def peer() -> float:
        return median(peers)

    return Sides(ours, peer)


async def decode_rate(engine: Engine, prompts: list[list[int]], params: SamplingParams) -> float:
    """Return tokens per second from the moment that all streams have their first token to the end of the last."""

    async def stream(prompt: list[int]) -> list[float]:
        times = []
        async for output in engine.generate(params, prompt_ids=prompt):
            times += [time.perf_counter()] * len(output.tokens)
        return times

    streams = await asyncio.gather(*(stream(prompt) for prompt in prompts))
    start, end = max(times[0] for times in streams), max(times[-1] for times in streams)
    return sum(moment > start for times in streams for moment in times) / (end - start)


def translation(name: str, sentences: int, beam_size: int) -> Workload:
    """Translate sentences that come together, encoder included."""

    @asynccontextmanager
    async def sides(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
        rng = np.random.default_rng(0)
        sources = [random_ids(rng, SENTENCE) for _ in range(sentences)]
        translator = translator_of(models, name)

        def theirs() -> float:
            started = time.perf_counter()
            translator.translate_batch(
                words(sources), beam_size=beam_size, max_decoding_length=SENTENCE, min_decoding_length=SENTENCE
            )
            return sentences * SENTENCE / (time.perf_counter() - started)

        async with engine_for(models, models.package(name)) as engine:

            async def translate_all() -> float:
                started = time.perf_counter()
                await asyncio.gather(*(translate(engine, source, SENTENCE, beam_size) for source in sources))
                return sentences * SENTENCE / (time.perf_counter() - started)

            async def peer() -> float:
                return await repeated(seconds, theirs)

            async def ours() -> float:
                return await repeated(seconds, translate_all)

            yield Sides(ours, peer)

    return sides


def translator_of(models: BenchModels, name: str) -> Any:
    """Open CTranslate2's translator."""
    import ctranslate2

    return ctranslate2.Translator(
        str(models.ctranslate2(name)), compute_type="int8", inter_threads=1, intra_threads=THREADS
    )


async def translate(engine: Engine, source: list[int], tokens: int, beam_size: int = 1) -> None:
    """Decode one translation of a given length."""
    params: SamplingParams | BeamParams = SamplingParams(max_tokens=tokens, temperature=0)
    if beam_size > 1:
        params = BeamParams(max_tokens=tokens, beam_size=beam_size)
    async for _ in engine.generate(params, source_ids=source):
        pass


@asynccontextmanager
async def arrivals(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
    """Translate sentences that come one by one, at four fifths of what the peer can do at most.

    Lengths are log-normal, median 20, 1 to 120, a translation as long as its source. The peer collects for 5 ms, or
    while it is busy, and translates what has come as one batch. What it can do at most is measured with full batches in
    the order of arrival. It cannot give each sentence its own length, so the batch decodes its mean length: its tokens
    are as many as ours, and it need not wait for the longest, which favours it.
    """
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(np.log(20), 0.7, 10_000)), 1, 120).astype(int).tolist()
    translator = translator_of(models, "base")

    def translate_batch(batch: list[int]) -> None:
        mean = round(sum(batch) / len(batch))
        sources = words([random_ids(rng, length) for length in batch])
        translator.translate_batch(
            sources, beam_size=1, max_decoding_length=mean, min_decoding_length=mean, max_batch_size=WINDOW
        )

    def saturation() -> float:
        started = time.perf_counter()
        for first in range(0, 256, WINDOW):
            translate_batch(lengths[first : first + WINDOW])
        return 256 / (time.perf_counter() - started)

    rate = 0.8 * await repeated(seconds, saturation)
    gaps = rng.exponential(1 / rate, 10_000)

    async def all_latencies(submit: Callable[[int], Awaitable[None]]) -> float:
        """Submit at the drawn times, whether or not the earlier ones are answered; return p95 in milliseconds."""
        latencies = []

        async def one(length: int, due: float) -> None:
            await submit(length)
            latencies.append(time.perf_counter() - due)

        tasks, due = [], time.perf_counter()
        for number in range(min(len(gaps), max(100, int(rate * seconds)))):
            due += float(gaps[number])
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(one(lengths[number], due)))
        await asyncio.gather(*tasks)
        return 1000 * float(np.quantile(latencies, 0.95))

    async with engine_for(models, models.package("base")) as engine:

        async def ours() -> float:
            return await all_latencies(lambda length: translate(engine, random_ids(rng, length), length))

        async def peer() -> float:
            window = _Window(translate_batch)
            try:
                return await all_latencies(window.submit)
            finally:
                window.task.cancel()

        yield Sides(ours, peer)


class _Window:
    """A batching window: what comes within 5 ms, or while a batch runs, is the next batch."""

    def __init__(self, run: Callable[[list[int]], None]) -> None:
        self._run = run
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._arrived = asyncio.Event()
        self.task = asyncio.create_task(self._work())

    async def submit(self, length: int) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((length, answer))
        self._arrived.set()
        await answer

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                await asyncio.sleep(0.005)
            batch, self._waiting = self._waiting[:WINDOW], self._waiting[WINDOW:]
            await asyncio.to_thread(self._run, [length for length, _ in batch])
            for _, answer in batch:
                answer.set_result(None)


@asynccontextmanager
async def bandwidth(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
    """Compare the bytes of weights that a stream's decode reads a second with those that a copy moves."""
    package = models.package("gpt2")
    weights = (package / "decoder.onnx").stat().st_size
    if Manifest.load(package).precision.endswith("blocks"):
        weights -= 50257 * 768  # words are looked up in a table of their own there, and not in what is multiplied with
    prompt = random_ids(np.random.default_rng(0), 64)
    origin, target = np.ones(2**26, np.float32), np.empty(2**26, np.float32)

    def copy() -> float:
        def part(number: int) -> None:
            piece = slice(number * len(origin) // THREADS, (number + 1) * len(origin) // THREADS)
            target[piece] = origin[piece]

        threads = [threading.Thread(target=part, args=(number,)) for number in range(THREADS)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 2 * origin.nbytes / (time.perf_counter() - started) / 1e9  # read, and written

    async with engine_for(models, package) as engine:

        async def peer() -> float:
            return await repeated(seconds, copy)

        async def ours() -> float:
            rate = await repeated(seconds, lambda: decode_rate(engine, [prompt], GREEDY))
            return rate * weights / 1e9

        yield Sides(ours, peer)


@asynccontextmanager
async def newcomers(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
    """Time the first tokens of short prompts that come behind a long one, and the long one's, in the same turns.

    The prompt has 5,000 tokens, the short ones 20; of these one comes every 0.3 s. All are of one client, and the
    scheduler's limits are the ones by default.
    """
    limits = SchedulerLimits(prefix_cache_bytes=0, has_drafts=False)
    package = models.package("smollm2")
    async with engine_of(package, SessionOptions(THREADS, half_cache=models.half_cache), limits) as engine:
        rng = np.random.default_rng(0)

        async def first_token(length: int) -> float:
            started = time.perf_counter()
            times = [
                time.perf_counter() - started
                async for _ in engine.generate(replace(GREEDY, max_tokens=8), prompt_ids=random_ids(rng, length))
            ]
            return 1000 * times[0]

        async def first_tokens() -> tuple[float, float]:
            long = asyncio.create_task(first_token(5_000))
            short: list[asyncio.Task[float]] = []
            while not long.done():
                await asyncio.sleep(0.3)
                short.append(asyncio.create_task(first_token(20)))
            of_long = await long
            return float(np.quantile(await asyncio.gather(*short), 0.95)), of_long

        yield of_same_turns(seconds, first_tokens)


def overhead(name: str) -> Workload:
    """Time all of a decode step of eight streams, and of the same steps the session's part, by a clock around it."""

    @asynccontextmanager
    async def sides(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
        package = STORIES if name == "stories" else models.package(name)
        async with engine_for(models, package) as engine:
            rng, vocab_size = np.random.default_rng(0), Manifest.load(package).vocab_size
            prompts = [rng.integers(5, vocab_size, 16).tolist() for _ in range(8)]
            session = engine._runner._decode_step._all_rows
            run, spent = session.run, [0.0, 0.0]  # seconds, steps

            def timed(recorded_as: int | None = None) -> None:
                started = time.perf_counter()
                run(recorded_as)
                spent[0] += time.perf_counter() - started
                spent[1] += 1

            session.run = timed  # type: ignore[method-assign]  # a clock for this measurement

            async def milliseconds_of_a_step() -> tuple[float, float]:
                spent[:] = [0.0, 0.0]
                rate = await decode_rate(engine, prompts, GREEDY)
                return 1000 * len(prompts) / rate, 1000 * spent[0] / spent[1]

            yield of_same_turns(seconds, milliseconds_of_a_step)

    return sides
