"""The workloads of `bench_engine` whose models read texts at once: beside torch, and beside OpenVINO."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import torch
import transformers

from loadtests.bench_decode import check_multiplied
from loadtests.bench_models import BenchModels
from loadtests.bench_workloads import ADMISSION, THREADS, Sides, Workload, random_ids, repeated
from model.package import Manifest
from service.engine.batcher import Batcher
from service.engine.inputs import TextInput
from service.engine.session import SessionOptions

TEXTS, PEERS_BATCH = 128, 32
Encode = Callable[[torch.Tensor], object]  # ids (B, T), 0 where there is no token


def ragged(name: str, model_class: str, longest: int, dtype: torch.dtype = torch.float32) -> Workload:
    """Encode 128 texts of 16 to `longest` tokens beside a class of `transformers`, which gets them sorted."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(16, longest + 1, TEXTS).tolist()
    return _beside(name, lengths, lambda models: _torch(models, name, model_class, dtype))


def alike(name: str, model_class: str, rows: int, tokens: int) -> Workload:
    """Encode texts of one length that come together, beside OpenVINO in the precision that it chooses."""
    return _beside(name, [tokens] * rows, lambda models: _openvino(models, name, model_class))


def _beside(name: str, lengths: Sequence[int], peer_of: Callable[[BenchModels], Encode]) -> Workload:
    @asynccontextmanager
    async def sides(models: BenchModels, seconds: float) -> AsyncGenerator[Sides, None]:
        rng = np.random.default_rng(0)
        texts = [random_ids(rng, length) for length in lengths]
        encode_batch, package = peer_of(models), models.package(name)
        batcher = Batcher(package, Manifest.load(package), SessionOptions(THREADS), admission=ADMISSION)

        def theirs() -> float:
            started = time.perf_counter()
            ordered = sorted(texts, key=len)
            for first in range(0, len(ordered), PEERS_BATCH):
                rows = [torch.tensor(row) for row in ordered[first : first + PEERS_BATCH]]
                encode_batch(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True))
            return len(texts) / (time.perf_counter() - started)

        async def encode_all() -> float:
            inputs = [TextInput(ids, [0] * len(ids)) for ids in texts]
            started = time.perf_counter()
            with batcher.admission.admit("", len(texts), sum(lengths)) as permit:
                await batcher.run(permit, inputs)
            return len(texts) / (time.perf_counter() - started)

        async def peer() -> float:
            return await repeated(seconds, theirs)

        async def ours() -> float:
            return await repeated(seconds, encode_all)

        yield Sides(ours, peer)
        await batcher.close()

    return sides


def _model(models: BenchModels, name: str, model_class: str, dtype: torch.dtype = torch.float32) -> Any:
    return getattr(transformers, model_class).from_pretrained(models.checkpoint(name), dtype=dtype).eval()


def _torch(models: BenchModels, name: str, model_class: str, dtype: torch.dtype) -> Encode:
    check_multiplied(dtype)
    torch.set_num_threads(THREADS)
    model = _model(models, name, model_class, dtype)

    def encode(ids: torch.Tensor) -> None:
        with torch.inference_mode():
            model(ids, attention_mask=ids != 0)

    return encode


def _openvino(models: BenchModels, name: str, model_class: str) -> Encode:
    """Open the model in OpenVINO, which takes bfloat16 where the processor multiplies it."""
    import openvino

    example = torch.ones(2, 8, dtype=torch.int64)
    converted = openvino.convert_model(
        _model(models, name, model_class), example_input={"input_ids": example, "attention_mask": example}
    )
    compiled = openvino.compile_model(converted, "CPU", {"INFERENCE_NUM_THREADS": THREADS})

    def encode(ids: torch.Tensor) -> None:
        compiled({"input_ids": ids.numpy(), "attention_mask": (ids != 0).long().numpy()})

    return encode
