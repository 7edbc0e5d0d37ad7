"""The engine against its peers: the same weights, threads and token counts on both sides, in turns.

Only the ratios mean something on a shared machine, and only where neighbours took as little from one side as from the
other; each result says how much. A model has one package for all its rows, of one precision. Ours is measured through
`Engine.generate` and `Batcher.run`, what the service itself uses; theirs through the calls that their own documentation
recommends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from rich.console import Console
from rich.table import Table

from loadtests import bench_encoders as encoders
from loadtests import bench_llama_cpp, bench_openvino_genai
from loadtests import bench_workloads as workloads
from loadtests.bench_decode import Peer, ctranslate2, decode, in_torch
from loadtests.bench_llama_cpp import llama_cpp
from loadtests.bench_models import BenchModels, Programs
from loadtests.bench_openvino_genai import openvino_genai
from loadtests.bench_sampling import MANY_BIASES, beside_greedy, beside_no_grammar, echo
from loadtests.bench_workloads import GREEDY
from loadtests.machine import Steal, about
from model.package.manifest import Precision
from service.engine.constraints import Constraints
from service.tasks.decoding_defaults import TEMPERATURE


@dataclass(frozen=True)
class Workload:
    """One row of the table: how to measure both sides, and the ratio that is aimed at."""

    task: str
    unit: str
    floor: float
    sides: workloads.Workload
    peer: str = ""  # empty where the task says beside what it is
    is_latency: bool = False  # smaller is better, and the floor a ceiling

    @property
    def name(self) -> str:
        """Return what a row is called: rows of one task differ by the peer."""
        return f"{self.task}, {self.peer}" if self.peer else self.task


DISTURBED = 0.01  # of all cores' time, taken from one side more than from the other
BERT = "BertForSequenceClassification"
SAMPLING: list[tuple[str, float, dict[str, Any]]] = [
    ("temperature 0.8", 0.9, {"temperature": 0.8}),
    ("top_p 0.95", 0.85, {"temperature": 0.8, "top_p": 0.95}),
    ("top_k 50", 0.9, {"temperature": 0.8, "top_k": 50}),
    ("logprobs 5", 0.85, {"logprobs": 5}),
    ("repetition_penalty 1.1", 0.85, {"constraints": Constraints(repetition_penalty=1.1)}),
    ("300 entries of logit_bias", 0.9, {"constraints": Constraints(logit_bias=MANY_BIASES)}),
]
DECODERS: dict[str, Peer] = {
    "ctranslate2": ctranslate2,
    "llama.cpp": llama_cpp,
    "openvino-genai": openvino_genai,
    "transformers float32": in_torch(torch.float32),
    "transformers bfloat16": in_torch(torch.bfloat16),
}
LEVEL = dict.fromkeys(DECODERS, 1.0)  # where nothing else is aimed at: no peer is faster
# Streams, tokens of their prompts, and what is aimed at beside each peer.
DECODES: list[tuple[int, int, dict[str, float]]] = [
    (1, 64, {**LEVEL, "ctranslate2": 2.0}),
    (8, 64, {**LEVEL, "ctranslate2": 1.5}),
    (32, 64, {**LEVEL, "ctranslate2": 1.5}),
    (32, 400, {"ctranslate2": 5.0, "llama.cpp": 1.0, "openvino-genai": 1.0}),
]
BY_DEFAULT = replace(GREEDY, temperature=TEMPERATURE)  # what a request gets that says nothing of it
WORKLOADS = [
    *(
        Workload(
            f"gpt2, {prompt}-token prompts, decode, {n} streams",
            "tokens/s",
            floor,
            decode("gpt2", n, prompt, DECODERS[peer]),
            peer,
        )
        for n, prompt, floors in DECODES
        for peer, floor in floors.items()
    ),
    *(
        Workload(
            f"gpt2, sampling by default (temperature {TEMPERATURE}), {n} streams",
            "tokens/s",
            floor,
            decode("gpt2", n, 64, ctranslate2, BY_DEFAULT),
            "ctranslate2",
        )
        for n, floor in ((1, 2.0), (8, 1.5), (32, 1.5))
    ),
    *(
        Workload(f"gpt2, sampling beside greedy, {name}", "tokens/s", floor, beside_greedy(replace(GREEDY, **params)))
        for name, floor, params in SAMPLING
    ),
    *(
        Workload(
            f"gpt2, sampling with a JSON schema beside without, {name}",
            "tokens/s",
            0.85,
            beside_no_grammar(replace(GREEDY, temperature=temperature)),
        )
        for name, temperature in (("greedy", 0.0), ("temperature 0.8", 0.8))
    ),
    Workload("gpt2, sampling, echo with logprobs beside prefill, 400-token prompts", "tokens/s", 0.7, echo),
    Workload(
        "gpt2, sampling, temperature 0.8, top_k 50, 32 streams",
        "tokens/s",
        1.5,
        decode("gpt2", 32, 64, ctranslate2, replace(BY_DEFAULT, top_k=50)),
        "ctranslate2",
    ),
    *(
        Workload(
            f"base, 24 → 24, greedy, {n} sentences",
            "tokens/s",
            floor,
            workloads.translation("base", n, beam_size=1),
            "ctranslate2",
        )
        for n, floor in ((1, 3.0), (8, 1.5), (32, 1.5))
    ),
    *(
        Workload(
            f"base, 24 → 24, beam 4, {n} sentences",
            "tokens/s",
            floor,
            workloads.translation("base", n, beam_size=4),
            "ctranslate2",
        )
        for n, floor in ((1, 2.5), (8, 1.4), (32, 1.3))
    ),
    Workload("base, Poisson arrivals, p95 latency", "ms", 0.6, workloads.arrivals, "ctranslate2", is_latency=True),
    *(
        Workload(
            f"smollm2, 64-token prompts, decode, {n} streams",
            "tokens/s",
            floor,
            decode("smollm2", n, 64, ctranslate2),
            "ctranslate2",
        )
        for n, floor in ((1, 1.5), (8, 1.5), (32, 1.3))
    ),
    Workload(
        "t5, 24 → 24, greedy, 8 sentences",
        "tokens/s",
        2.0,
        workloads.translation("t5", 8, beam_size=1),
        "ctranslate2",
    ),
    *(
        Workload(
            "bert, 16–256 tokens ragged",
            "sequences/s",
            3.0,
            encoders.ragged("bert", BERT, longest=256, dtype=dtype),
            f"transformers {word}",
        )
        for word, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    ),
    Workload(
        "minilm, 16–128 tokens ragged",
        "sequences/s",
        3.0,
        encoders.ragged("minilm", "BertModel", longest=128),
        "transformers float32",
    ),
    *(
        Workload(f"bert, {n} × {t} tokens", "sequences/s", 1.0, encoders.alike("bert", BERT, n, t), "openvino")
        for n, t in ((1, 16), (1, 128), (8, 64), (8, 128), (32, 64), (32, 256))
    ),
    Workload(
        "smollm2, first tokens of short prompts, p95, beside that of the long prompt before them",
        "ms",
        0.25,
        workloads.newcomers,
        is_latency=True,
    ),
    Workload("gpt2, one stream, of the memory's bandwidth", "GB/s", 0.7, workloads.bandwidth),
    *(
        Workload(f"{name}, 8 streams, step beside session.run", "ms", most, workloads.overhead(name), is_latency=True)
        for name, most in (("gpt2", 1.05), ("stories", 1.35))
    ),
]


@dataclass(frozen=True)
class Result:
    """Both sides' medians, their ratio, and what neighbours took of the machine meanwhile."""

    workload: str
    ours: float
    peer: float
    unit: str
    ratio: float
    floor: float
    steal: tuple[float, float] = (0.0, 0.0)  # of all cores' time, the largest of the turns that count; ours, the peer's
    repeated: int = 0  # pairs of turns that did not count, as one side alone was disturbed


def main() -> None:
    """Measure the workloads and print a table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_engine", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORKLOAD", help="those whose names contain this")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each side's turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side; the median counts")
    parser.add_argument("--models", type=Path, default=Path("runs/bench"), help="folder for the models, made once")
    precisions = get_args(Precision)
    parser.add_argument("--precision", choices=precisions, default="int8", help="of our packages, one for all loads")
    caches = ("float32", "float16")
    parser.add_argument("--kv-cache", choices=caches, default="float16", help="what our keys and values are kept in")
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="llama.cpp's server, a peer")
    parser.add_argument(
        "--openvino-genai", type=Path, metavar="PYTHON", help="of an environment with openvino-genai, a peer"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    options = parser.parse_args()
    programs = Programs(options.llama_server, options.openvino_genai)
    half_cache = options.kv_cache == "float16"
    models, console = BenchModels(options.models, options.precision, programs, half_cache=half_cache), Console()
    chosen = [workload for workload in WORKLOADS if options.only in workload.name]
    if not chosen:
        parser.error(f"--only {options.only!r}: no such workload; there are: {'; '.join(w.name for w in WORKLOADS)}")
    run: dict[str, Any] = {"about": about(), "precision": options.precision, "kv_cache": options.kv_cache}
    run["about"]["libraries"] |= versions(programs)
    measured: list[tuple[Result, Workload]] = []
    for workload in chosen:
        try:
            with console.status(workload.name):
                result = asyncio.run(measure(workload, models, options.seconds, options.rounds))
        except ModuleNotFoundError as error:
            console.print(f"{workload.name}: left out, as {error.name} is not installed; the extra `peers` has it")
            continue
        except workloads.Missing as error:
            console.print(f"{workload.name}: left out, as {error}")
            continue
        measured.append((result, workload))
        console.print(row_of(result, workload))
        if options.json:  # after every row: whoever ends a run of an hour keeps what it has found
            found = {**run, "results": [asdict(result) for result, _ in measured]}
            options.json.write_text(json.dumps(found, indent=2) + "\n")
    console.print(table_of(measured))


def versions(programs: Programs) -> dict[str, str]:
    """Return the versions of the peers that are programs of their own."""
    found = {
        "llama.cpp": programs.llama_server and bench_llama_cpp.version_of(programs.llama_server),
        "openvino-genai": programs.openvino_genai and bench_openvino_genai.version_of(programs.openvino_genai),
    }
    return {name: version for name, version in found.items() if version}


async def measure(workload: Workload, models: BenchModels, seconds: float, rounds: int) -> Result:
    """Measure both sides in turns; the first turn of each warms up and is not counted.

    A pair of turns is measured again where neighbours took time from one side and not from the other, up to as often
    as there are rounds: such a pair would flatter one of them.
    """
    pairs: list[tuple[Turn, Turn]] = []
    repeated = 0
    async with workload.sides(models, seconds) as sides:
        await sides.ours(), await sides.peer()
        while len(pairs) < rounds:
            pair = await turn(sides.ours), await turn(sides.peer)
            if abs(pair[0].steal - pair[1].steal) > DISTURBED and repeated < rounds:
                repeated += 1
            else:
                pairs.append(pair)
    ours, peer = (statistics.median(pair[side].value for pair in pairs) for side in (0, 1))
    steal = max(pair[0].steal for pair in pairs), max(pair[1].steal for pair in pairs)
    return Result(workload.name, ours, peer, workload.unit, ours / peer, workload.floor, steal, repeated)


@dataclass(frozen=True)
class Turn:
    """One side's figure, and the share of all cores' time that went to others of the host meanwhile."""

    value: float
    steal: float


async def turn(side: Callable[[], Awaitable[float]]) -> Turn:
    """Let a side have its turn."""
    steal = Steal()
    value = await side()
    return Turn(value, steal.share())


def is_reached(result: Result, workload: Workload) -> bool:
    """Whether a ratio is what was aimed at."""
    return result.ratio <= result.floor if workload.is_latency else result.ratio >= result.floor


def row_of(result: Result, workload: Workload) -> str:
    """Return a result as a line, shown as soon as it is known."""
    verdict = "reached" if is_reached(result, workload) else "missed"
    taken = f"steal {result.steal[0]:.1%} and {result.steal[1]:.1%}, {result.repeated} turns repeated"
    figures = f"{result.ours:.1f} to {result.peer:.1f} {result.unit}, {result.ratio:.2f} ({verdict})"
    return f"{result.workload}: {figures}; {taken}"


COLUMNS = ("workload", "ours", "peer", "ratio", "aim", "steal")


def cells_of(result: Result, workload: Workload) -> list[str]:
    """Return a result as the cells of a table."""
    aim = f"{'≤' if workload.is_latency else '≥'} {result.floor:g}"
    return [
        result.workload,
        *(f"{value:.4g} {result.unit}" for value in (result.ours, result.peer)),
        f"{result.ratio:.2f}",
        aim if is_reached(result, workload) else f"{aim}, missed",
        " / ".join(f"{share:.1%}" for share in result.steal),
    ]


def table_of(measured: list[tuple[Result, Workload]]) -> Table:
    """Return all results as a table."""
    table = Table(*COLUMNS)
    for result, workload in measured:
        table.add_row(*cells_of(result, workload))
    return table


if __name__ == "__main__":
    main()
