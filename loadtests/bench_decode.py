"""The workloads of `bench_engine` that decode behind prompts, and two of the peers: CTranslate2 and `transformers`.

A peer tells how many tokens a second it decodes once all streams have begun: prompts are computed and not counted. Ours
is known by the times of streamed tokens. Of a peer that gives whole answers only it is what more tokens took than one.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import numpy as np
import torch
import transformers

from loadtests.bench_models import BenchModels
from loadtests.bench_workloads import (
    GREEDY,
    NEW_TOKENS,
    THREADS,
    Missing,
    Sides,
    Workload,
    decode_rate,
    engine_for,
    random_ids,
    repeated,
    words,
)
from loadtests.machine import multiplies_bfloat16
from service.engine.sampling_params import SamplingParams

Prompts = list[list[int]]
Rate = Callable[[], float | Awaitable[float]]  # tokens per second of one generation
# From the models, the name of one, prompts and how tokens are chosen to what measures the peer, while it is open.
Peer = Callable[[BenchModels, str, Prompts, SamplingParams], AbstractAsyncContextManager[Rate]]


def decode(name: str, streams: int, prompt: int, peer: Peer, params: SamplingParams = GREEDY) -> Workload:
    """Decode after prompts of so many tokens, prefill not counted."""

    @asynccontextmanager
    async def sides(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
        rng = np.random.default_rng(0)
        prompts = [random_ids(rng, prompt) for _ in range(streams)]
        async with peer(models, name, prompts, params) as rate, engine_for(models, models.package(name)) as engine:

            async def ours() -> float:
                return await repeated(seconds, lambda: decode_rate(engine, prompts, params))

            async def theirs() -> float:
                return await repeated(seconds, rate)

            yield Sides(ours, theirs)

    return sides


@asynccontextmanager
async def ctranslate2(
    models: BenchModels, name: str, prompts: Prompts, params: SamplingParams
) -> AsyncGenerator[Rate, None]:
    """Generate by CTranslate2, int8; what is greedy has a top-k of 1 there."""
    from ctranslate2 import Generator  # what is measured on a GPU goes without

    generator = Generator(str(models.ctranslate2(name)), compute_type="int8", inter_threads=1, intra_threads=THREADS)

    def took(tokens: int) -> float:
        started = time.perf_counter()
        generator.generate_batch(
            words(prompts),
            max_length=tokens,
            min_length=tokens,
            sampling_topk=params.top_k if params.temperature else 1,
            sampling_temperature=params.temperature or 1,
            include_prompt_in_result=False,
        )
        return time.perf_counter() - started

    yield lambda: without_prompts(len(prompts), took(NEW_TOKENS), took(1))


def in_torch(dtype: torch.dtype) -> Peer:
    """Generate by `transformers`' own loop on torch, all streams as one batch, greedily."""

    @asynccontextmanager
    async def peer(
        models: BenchModels, name: str, prompts: Prompts, params: SamplingParams
    ) -> AsyncGenerator[Rate, None]:
        assert params.temperature == 0, "bug: nobody asks this peer to sample"
        check_multiplied(dtype)
        torch.set_num_threads(THREADS)
        model = transformers.AutoModelForCausalLM.from_pretrained(models.checkpoint(name), dtype=dtype).eval()
        model.generation_config.eos_token_id = None  # as long as asked for, without a processor that forbids the end
        given = torch.tensor(prompts)

        def took(tokens: int) -> float:
            started = time.perf_counter()
            found = model.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=tokens, do_sample=False, pad_token_id=0
            )
            assert found.shape[1] == given.shape[1] + tokens, "bug: an answer has ended before its time"
            return time.perf_counter() - started

        yield lambda: without_prompts(len(prompts), took(NEW_TOKENS), took(1))

    return peer


def without_prompts(streams: int, all_s: float, first_s: float) -> float:
    """Return tokens per second between the first token of each stream and its last, of what both took with prompts."""
    return streams * (NEW_TOKENS - 1) / (all_s - first_s)


def check_multiplied(dtype: torch.dtype) -> None:
    """Refuse bfloat16 where it would be widened first: nobody would use it there."""
    if dtype == torch.bfloat16 and not multiplies_bfloat16():
        raise Missing("this processor has no instruction that multiplies bfloat16")
