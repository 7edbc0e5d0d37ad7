from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
from pathlib import Path

import pytest

from service.engine.beam_search import BeamParams
from service.engine.engine import Engine
from service.engine.sampling import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from tests.conftest import MakePackage

FIRST, ALL = 1_000, 10_000


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="the resident memory is read from /proc")
@pytest.mark.parametrize("name", ["stories", "translate"])
async def test_ragged_requests_leave_memory_where_it_was(make_package: MakePackage, name: str) -> None:
    package, rng = make_package(name, "int8"), random.Random(1)
    limits = SchedulerLimits(max_slots=32, prefill_tokens=256, max_waiting_sequences=64, prefix_cache_bytes=2**18)
    engine = Engine(package.folder, package.manifest, SessionOptions(threads=1), limits)
    places = asyncio.Semaphore(48)

    async def request() -> None:
        ids = [rng.randrange(3, 200) for _ in range(rng.randint(1, 40))]
        params: SamplingParams | BeamParams = SamplingParams(max_tokens=rng.randint(1, 6), seed=1)
        if rng.random() < 0.1:
            params = BeamParams(max_tokens=rng.randint(1, 6), beam_size=rng.randint(2, 4))
        async with places:
            async for _ in engine.generate(params, **{"prompt_ids" if name == "stories" else "source_ids": ids}):
                pass

    await asyncio.gather(*(request() for _ in range(FIRST)))
    after_the_first = resident_bytes()
    for _ in range(FIRST, ALL, FIRST):
        await asyncio.gather(*(request() for _ in range(FIRST)))
    growth = resident_bytes() / after_the_first - 1
    await engine.close()

    assert growth < 0.05
