"""A peer of `bench_engine`: openvino-genai's continuous batching, weights in int8.

It lives in an environment of its own, whose versions need not be ours: `loadtests/README.md` says how to make it. What
runs there is `openvino_genai_peer.py`, which is asked for one generation a line.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from loadtests import openvino_genai_peer
from loadtests.bench_decode import Prompts, Rate
from loadtests.bench_models import BenchModels
from loadtests.bench_workloads import NEW_TOKENS, THREADS, Missing
from service.engine.sampling_params import SamplingParams

PEER = Path(openvino_genai_peer.__file__)
STOPS_WITHIN_S = 10.0


@asynccontextmanager
async def openvino_genai(
    models: BenchModels, name: str, prompts: Prompts, params: SamplingParams
) -> AsyncGenerator[Rate, None]:
    """Ask the other process for generations, which knows by itself when all streams have begun."""
    if models.programs.openvino_genai is None:
        raise Missing("the Python of an environment with openvino-genai was not given, as --openvino-genai")
    assert params.temperature == 0, "bug: nobody asks this peer to sample"
    model = exported(models, name)
    command: list[str | Path] = [models.programs.openvino_genai, PEER, "generate", model, str(THREADS)]
    async with answering(command) as process:
        question = json.dumps({"prompts": prompts, "tokens": NEW_TOKENS}).encode() + b"\n"

        async def rate() -> float:
            assert process.stdin is not None and process.stdout is not None, "bug: both are pipes"
            process.stdin.write(question)
            await process.stdin.drain()
            answer = await process.stdout.readline()
            if not answer:
                raise ChildProcessError("openvino-genai's process has ended; what it said stands above")
            return float(json.loads(answer))

        yield rate


@asynccontextmanager
async def answering(command: list[str | Path]) -> AsyncGenerator[Process, None]:
    """Run a program that answers lines by lines; it is gone afterwards."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        assert process.stdin is not None, "bug: it is a pipe"
        process.stdin.close()  # after the last line it ends by itself
        try:
            await asyncio.wait_for(process.wait(), STOPS_WITHIN_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def exported(models: BenchModels, name: str) -> Path:
    """Return the folder of OpenVINO's model, made once by its own tools."""
    path = models.folder / name / "openvino-int8"
    if not path.exists():
        unfinished = path.with_name(f"{path.name}.unfinished")
        said = _run(models, "export", models.checkpoint(name), unfinished)
        if said.returncode != 0:
            raise ChildProcessError(f"openvino-genai's model was not made: {said.stderr[-2000:]}")
        unfinished.rename(path)
    return path


def version_of(python: Path) -> str:
    """Return the version of openvino-genai in an environment."""
    return subprocess.run([python, PEER, "version"], check=True, capture_output=True, text=True).stdout.strip()


def _run(models: BenchModels, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    python = models.programs.openvino_genai
    assert python is not None, "bug: asked before"
    return subprocess.run([python, PEER, *arguments], check=False, capture_output=True, text=True)
