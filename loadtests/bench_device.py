"""The engine on a GPU beside torch there, eager and compiled: the same weights in float16, ours first.

It also states what the device could do at most: its memory's rate by a copy, its arithmetic by one large product.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table

from loadtests.bench_models import BenchModels
from loadtests.bench_workloads import ADMISSION, SENTENCE, decode_rate, engine_of, random_ids, translate
from loadtests.machine import about
from model.package import Manifest
from service.engine.batcher import Batcher
from service.engine.inputs import TextInput
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions

LIMITS = SchedulerLimits(max_slots=256, prefill_tokens=16384, prefix_cache_bytes=0)
NEW_TOKENS = 96  # of a generation; a GPU is through with fewer before it is warm
OPTIONS = SessionOptions(cuda=True)


@dataclass(frozen=True)
class Result:
    """One workload's rates: ours, torch's, and what share of the device's limit ours is, where that is known."""

    workload: str
    unit: str
    ours: float
    eager: float | None = None
    compiled: float | None = None
    of_limit: float | None = None


@dataclass(frozen=True)
class Workload:
    """What is measured: ours, torch's as it comes and compiled, and the share of the device's limit that a rate is."""

    name: str
    unit: str
    ours: Callable[[BenchModels, int], Coroutine[Any, Any, float]]
    eager: Callable[[BenchModels, int], float] | None = None
    compiled: Callable[[BenchModels, int], float] | None = None
    of_limit: Callable[[BenchModels, Device, float], float] | None = None


@dataclass(frozen=True)
class Device:
    """What the device does at most, measured."""

    name: str
    bytes_per_second: float  # read and written by a copy
    flops: float  # of a float16 product of 8192 × 8192 × 8192

    @classmethod
    def measured(cls) -> Device:
        """Measure both."""
        big = torch.empty(2**30, dtype=torch.uint8, device="cuda").random_()
        copied = torch.empty_like(big)
        matrix = torch.randn(8192, 8192, dtype=torch.float16, device="cuda")
        copy_s = seconds_of(lambda: copied.copy_(big))
        product_s = seconds_of(lambda: matrix @ matrix)
        return cls(torch.cuda.get_device_name(), 2 * big.numel() / copy_s, 2 * 8192**3 / product_s)


def seconds_of(run: Callable[[], object], times: int = 10) -> float:
    """Return the median time of a run on the device, warm."""
    for _ in range(3):
        run()
    taken = []
    for _ in range(times):
        torch.cuda.synchronize()
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return median(taken)


def ids_of(rows: int, tokens: int) -> list[list[int]]:
    """Return ids that every model here has, and none that is special."""
    rng = np.random.default_rng(0)
    return [random_ids(rng, tokens) for _ in range(rows)]


async def median_of(rounds: int, run: Callable[[], Awaitable[float]]) -> float:
    """Return the median of some runs behind two that warm up."""
    await run(), await run()
    return median([await run() for _ in range(rounds)])


async def decode(models: BenchModels, streams: int, prompt: int, params: SamplingParams, rounds: int) -> float:
    """Return our tokens per second from the moment when all streams have begun to the end of the last."""
    async with engine_of(models.package("gpt2"), OPTIONS, LIMITS) as engine:
        return await median_of(rounds, lambda: decode_rate(engine, ids_of(streams, prompt), params))


async def translation(models: BenchModels, sentences: int, beam_size: int, rounds: int) -> float:
    """Return our tokens per second, encoder included."""
    async with engine_of(models.package("base"), OPTIONS, LIMITS) as engine:

        async def rate() -> float:
            started = time.perf_counter()
            sources = ids_of(sentences, SENTENCE)
            await asyncio.gather(*(translate(engine, source, SENTENCE, beam_size) for source in sources))
            return sentences * SENTENCE / (time.perf_counter() - started)

        return await median_of(rounds, rate)


async def encoding(models: BenchModels, rows: int, tokens: int, rounds: int) -> float:
    """Return our sequences per second."""
    package = models.package("bert")
    batcher = Batcher(package, Manifest.load(package), OPTIONS, batch_tokens=rows * tokens, admission=ADMISSION)
    inputs = [TextInput(ids, [0] * tokens) for ids in ids_of(rows, tokens)]

    async def rate() -> float:
        started = time.perf_counter()
        with batcher.admission.admit("", rows, rows * tokens) as permit:
            await batcher.run(permit, inputs)
        return rows / (time.perf_counter() - started)

    try:
        return await median_of(rounds, rate)
    finally:
        await batcher.close()


@cache
def torch_model(models: BenchModels, name: str, model_class: str) -> Any:
    """Open the checkpoint that ours was made of, in float16, once."""
    loaded = getattr(transformers, model_class).from_pretrained(models.checkpoint(name), dtype=torch.float16)
    return loaded.cuda().eval()


@torch.inference_mode()
def torch_generate(model: Any, ids: list[list[int]], new: int, rounds: int, **options: Any) -> float:
    """Return the tokens per second of `transformers`' own loop, the time to the first token taken off."""
    given = torch.tensor(ids, device="cuda")

    def took(tokens: int) -> float:
        run = dict(max_new_tokens=tokens, do_sample=False, pad_token_id=0, **options)
        return seconds_of(lambda: model.generate(given, attention_mask=torch.ones_like(given), **run), rounds)

    model.generation_config.eos_token_id = None  # as long as asked for, without a processor that forbids the end
    return len(ids) * (new - 1) / (took(new) - took(1))


@torch.inference_mode()
def torch_encode(forward: Callable[..., object], rows: int, tokens: int) -> float:
    """Return sequences per second, the copy to the device included, as ours has it."""
    given = torch.tensor(ids_of(rows, tokens))
    return rows / seconds_of(lambda: forward(given.to("cuda")))


def encoder_flops(rows: int, tokens: int) -> float:
    """Return the operations of BERT-base's products and attention."""
    layer = 2 * (4 * 768 * 768 + 2 * 768 * 3072) * tokens + 4 * tokens * tokens * 768
    return 12.0 * layer * rows


def decoding(streams: int, prompt: int, *, static: bool = False, **params: Any) -> Workload:
    """Generate after prompts, prefill not counted."""
    asked = SamplingParams(NEW_TOKENS, **{"temperature": 0, **params})
    words = "".join(f", {name} {value}" for name, value in params.items())

    def theirs(models: BenchModels, rounds: int, **options: Any) -> float:
        model = torch_model(models, "gpt2", "GPT2LMHeadModel")
        return torch_generate(model, ids_of(streams, prompt), NEW_TOKENS, rounds, **options)

    def of_bandwidth(models: BenchModels, device: Device, rate: float) -> float:
        words_bytes = 50257 * 768 * 2  # are looked up in a table of their own
        weights = (models.package("gpt2") / "decoder.onnx").stat().st_size - words_bytes
        return rate * weights / device.bytes_per_second

    return Workload(
        f"gpt2, {prompt}-token prompts{words}, decode, {streams} streams",
        "tokens/s",
        lambda models, rounds: decode(models, streams, prompt, asked, rounds),
        eager=None if params else theirs,
        compiled=partial(theirs, cache_implementation="static") if static else None,
        of_limit=of_bandwidth if streams == 1 else None,
    )


def translating(sentences: int, beam_size: int) -> Workload:
    """Translate sentences that come together, encoder included."""

    def theirs(models: BenchModels, rounds: int) -> float:
        model = torch_model(models, "base", "BartForConditionalGeneration")
        given = torch.tensor(ids_of(sentences, SENTENCE), device="cuda")
        fixed = {"max_new_tokens": SENTENCE, "min_new_tokens": SENTENCE, "num_beams": beam_size, "do_sample": False}
        with torch.inference_mode():
            taken = seconds_of(lambda: model.generate(given, attention_mask=torch.ones_like(given), **fixed), rounds)
        return sentences * SENTENCE / taken

    return Workload(
        f"base, 24 → 24, beam {beam_size}, {sentences} sentences",
        "tokens/s",
        lambda models, rounds: translation(models, sentences, beam_size, rounds),
        eager=theirs,
    )


def reading(rows: int, tokens: int, *, compiled: bool = False) -> Workload:
    """Classify texts of one length that come together."""

    def theirs(models: BenchModels, rounds: int, mode: str | None = None) -> float:
        model = torch_model(models, "bert", "BertForSequenceClassification")
        return torch_encode(torch.compile(model, mode=mode) if mode else model, rows, tokens)

    return Workload(
        f"bert, {rows} × {tokens} tokens",
        "sequences/s",
        lambda models, rounds: encoding(models, rows, tokens, rounds),
        eager=theirs,
        compiled=partial(theirs, mode="max-autotune-no-cudagraphs") if compiled else None,
        of_limit=lambda _, device, rate: rate / rows * encoder_flops(rows, tokens) / device.flops,
    )


WORKLOADS = [
    *(decoding(streams, prompt=64, static=streams in {1, 32}) for streams in (1, 8, 32, 256)),
    decoding(32, prompt=400),
    decoding(32, prompt=64, temperature=0.8, top_k=50),
    decoding(32, prompt=64, temperature=0.8, top_p=0.95),
    *(translating(sentences, beam_size) for beam_size in (1, 4) for sentences in (1, 8, 32)),
    *(reading(rows, tokens=128, compiled=rows == 64) for rows in (1, 8, 64, 256)),
]


def measure(workload: Workload, models: BenchModels, device: Device, rounds: int, *, compiled: bool) -> Result:
    """Measure both sides, ours first."""
    ours = asyncio.run(workload.ours(models, rounds))
    return Result(
        workload.name,
        workload.unit,
        ours,
        eager=workload.eager(models, rounds) if workload.eager else None,
        compiled=workload.compiled(models, rounds) if compiled and workload.compiled else None,
        of_limit=workload.of_limit(models, device, ours) if workload.of_limit else None,
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_device", description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("runs/bench"), help="folder for the models, made once")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side; the median counts")
    parser.add_argument("--only", default="", metavar="WORKLOAD", help="those whose names contain this")
    parser.add_argument("--eager", action="store_true", help="leave out what has to be compiled first, for minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    options = parser.parse_args()
    device = Device.measured()
    models = BenchModels(options.models, "float16")
    results: list[Result] = []
    for workload in WORKLOADS:
        if options.only in workload.name:
            results.append(measure(workload, models, device, options.rounds, compiled=not options.eager))
            print(json.dumps(asdict(results[-1])), flush=True)
    table = Table(title=f"{device.name}: {device.bytes_per_second / 1e12:.2f} TB/s, {device.flops / 1e12:.0f} TFLOP/s")
    for heading in ("workload", "ours", "torch eager", "torch compiled", "of the limit"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for result in results:
        rates = (f"{rate:,.0f}" if rate else "" for rate in (result.ours, result.eager, result.compiled))
        table.add_row(result.workload, *rates, f"{result.of_limit:.0%}" if result.of_limit else "")
    Console().print(table)
    if options.json:
        found = {"about": about(), "device": asdict(device), "results": [asdict(result) for result in results]}
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
