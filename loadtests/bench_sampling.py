"""The workloads of `bench_engine` that ask what choosing tokens costs: both sides are ours, with and without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np

from loadtests.bench_models import BenchModels
from loadtests.bench_workloads import GREEDY, Sides, Workload, decode_rate, engine_for, random_ids, repeated
from model.package import Manifest
from service.engine.constraints import Constraints
from service.engine.engine import Engine
from service.engine.grammar import Vocabulary
from service.engine.sampling_params import SamplingParams
from service.schemas import Grammar
from service.tasks.grammars import lark_of

STREAMS = 32
ECHOED = 4  # prompts, 400 tokens each
RECORD = {  # longer than what is measured, so that no stream ends before the others
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1000},
        "kind": {"enum": ["question", "answer", "remark"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 4},
        "author": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 30}, "email": {"type": ["string", "null"]}},
            "required": ["name", "email"],
            "additionalProperties": False,
        },
        "text": {"type": "string", "minLength": 2000},
    },
    "required": ["id", "kind", "tags", "author", "text"],
    "additionalProperties": False,
}
MANY_BIASES = dict.fromkeys(range(100, 30_100, 100), 0.5)


def beside_greedy(params: SamplingParams) -> Workload:
    """Decode 32 streams of GPT-2 with some parameters, and greedily."""

    @asynccontextmanager
    async def sides(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
        rng = np.random.default_rng(0)
        prompts = [random_ids(rng, 64) for _ in range(STREAMS)]
        async with engine_for(models, models.package("gpt2")) as engine:

            async def ours() -> float:
                return await repeated(seconds, lambda: decode_rate(engine, prompts, params))

            async def peer() -> float:
                return await repeated(seconds, lambda: decode_rate(engine, prompts, GREEDY))

            yield Sides(ours, peer)

    return sides


def beside_no_grammar(params: SamplingParams) -> Workload:
    """Decode 32 streams of GPT-2 with some parameters as a JSON schema has them, and as they come."""

    @asynccontextmanager
    async def sides(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
        rng = np.random.default_rng(0)
        prompts = [random_ids(rng, 64) for _ in range(STREAMS)]
        package = models.package("gpt2")
        manifest = Manifest.load(package)
        assert manifest.special_ids.end == manifest.vocab_size - 1, "bug: the special token is the last"
        vocabulary = Vocabulary(models.spelling(manifest.vocab_size), manifest.vocab_size - 1, manifest.vocab_size)
        grammar = vocabulary.grammar(lark_of(Grammar(json_schema=RECORD)))
        held = replace(params, constraints=Constraints(grammar=grammar))
        async with engine_for(models, package) as engine:

            async def ours() -> float:
                return await repeated(seconds, lambda: decode_rate(engine, prompts, held))

            async def peer() -> float:
                return await repeated(seconds, lambda: decode_rate(engine, prompts, params))

            yield Sides(ours, peer)

    return sides


@asynccontextmanager
async def echo(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
    """Compute prompts and one token each, with the prompts' log probabilities and without."""
    rng = np.random.default_rng(0)
    prompts = [random_ids(rng, 400) for _ in range(ECHOED)]
    plain = replace(GREEDY, max_tokens=1)
    async with engine_for(models, models.package("gpt2")) as engine:

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
