"""The workloads of `bench_engine` that ask what choosing tokens costs: both sides are ours, with and without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np

from loadtests.bench_models import BenchModels
from loadtests.bench_workloads import GREEDY, Sides, Workload, decode_rate, engine_of, random_ids, repeated
from service.engine.engine import Engine
from service.engine.sampling import SamplingParams

STREAMS = 32
ECHOED = 4  # prompts, 400 tokens each
MANY_BIASES = dict.fromkeys(range(100, 30_100, 100), 0.5)


def beside_greedy(params: SamplingParams) -> Workload:
    """Decode 32 streams of GPT-2 with some parameters, and greedily."""

    @asynccontextmanager
    async def sides(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
        rng = np.random.default_rng(0)
        prompts = [random_ids(rng, 64) for _ in range(STREAMS)]
        async with engine_of(models.package("gpt2")) as engine:

            async def ours() -> float:
                return await repeated(seconds, lambda: decode_rate(engine, prompts, params))

            async def peer() -> float:
                return await repeated(seconds, lambda: decode_rate(engine, prompts, GREEDY))

            yield Sides(ours, peer)

    return sides


@asynccontextmanager
async def echo(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
    """Compute prompts and one token each, with the prompts' log probabilities and without."""
    rng = np.random.default_rng(0)
    prompts = [random_ids(rng, 400) for _ in range(ECHOED)]
    plain = replace(GREEDY, max_tokens=1)
    async with engine_of(models.package("gpt2")) as engine:

        async def ours() -> float:
            echoed = replace(plain, logprobs=5, prompt_logprobs=5)
            return await repeated(seconds, lambda: _prefill_rate(engine, prompts, echoed))

        async def peer() -> float:
            return await repeated(seconds, lambda: _prefill_rate(engine, prompts, plain))

        yield Sides(ours, peer)


async def _prefill_rate(engine: Engine, prompts: list[list[int]], params: SamplingParams) -> float:
    """Return tokens of prompts per second, until each prompt has its one token."""

    async def answer(prompt: list[int]) -> None:
        async for _ in engine.generate(params, prompt_ids=prompt):
            pass

    started = time.perf_counter()
    await asyncio.gather(*(answer(prompt) for prompt in prompts))
    return sum(map(len, prompts)) / (time.perf_counter() - started)
