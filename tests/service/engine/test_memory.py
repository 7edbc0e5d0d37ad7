from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from service.engine.arrays import Array
from service.engine.beam_search import BeamParams
from service.engine.engine import Engine
from service.engine.memory import PAGE, HostMemory, MemoryShape, whole_pages
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from tests.conftest import MakePackage

FIRST, ALL = 1_000, 10_000


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_numbers_that_16_bits_do_not_hold_become_the_greatest_that_they_do() -> None:
    memory = HostMemory(MemoryShape(arrays=2, slots=2, heads=1, length=64, width=16, dtype="float16"))
    memory.store(1, [np.full((1, 1, 3, 16), value, np.float32) for value in (1e6, -1e6)], np.array([3]))

    assert memory.read(1, 0, 3)[:, 0, 0, 0].tolist() == [65504, -65504]


def test_a_slots_old_length_is_forgotten_with_what_it_held() -> None:
    memory = HostMemory(MemoryShape(arrays=2, slots=4, heads=1, length=256, width=16, dtype="float32"))
    tokens = np.ones((1, 100, 16), np.float32)
    memory.make_room(100, 0)
    memory.write(0, 0, [tokens] * 2)
    memory.make_room(10, 0)  # nothing lives; the next source of slot 0 cannot be computed, that of slot 1 can
    memory.write(1, 0, [tokens[:, :10]] * 2)
    memory.make_room(200, 2)

    assert memory.read(1, 0, 10).all()


@pytest.mark.skipif(sys.platform != "linux", reason="the resident memory is read from /proc")
@pytest.mark.parametrize("name", ["stories", "translate"])
async def test_ragged_requests_leave_memory_where_it_was(make_package: MakePackage, name: str) -> None:
    package, rng = make_package(name, "int8"), random.Random(1)
    limits = SchedulerLimits(max_slots=32, prefill_tokens=256, prefix_cache_bytes=2**18)
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


SHAPE = MemoryShape(arrays=2, slots=6, heads=3, length=256, width=64, dtype="float32")  # 16 tokens fill a page


def tokens(count: int, value: float = 1.0) -> list[Array]:
    return [np.full((SHAPE.heads, count, SHAPE.width), value + index, np.float32) for index in range(SHAPE.arrays)]


def test_memory_costs_what_is_written_and_not_what_is_reserved() -> None:
    before = resident_bytes()
    memory = HostMemory(MemoryShape(arrays=24, slots=1024, heads=12, length=4096, width=64, dtype="float32"))
    assert memory.used_bytes == 0
    memory.hold(3, np.array([17]))

    assert memory.used_bytes == 24 * 12 * 2 * PAGE
    assert resident_bytes() - before < 2**24  # of 288 GiB


def test_what_is_given_back_is_what_holds_no_token() -> None:
    memory = HostMemory(SHAPE)
    for slot in range(4):
        memory.write(slot, 0, tokens(200, slot))
    memory.hold(1, np.array([50]))  # another sequence took the slot
    memory.forget(2)
    memory.release()

    assert memory.used_bytes == SHAPE.arrays * SHAPE.heads * (13 + 4) * PAGE
    for slot, count in ((0, 200), (1, 50)):
        np.testing.assert_array_equal(memory.read(slot, 0, count), tokens(count, slot))
    assert not memory.read(2, 0, 200).any() and not memory.read(1, 64, 200).any()


def test_padding_is_paid_for_and_not_kept() -> None:
    memory = HostMemory(SHAPE)
    memory.hold(0, np.array([10, 40]), written=np.array([40, 40]))
    assert memory.used_bytes == SHAPE.arrays * SHAPE.heads * 6 * PAGE
    memory.release()

    assert memory.used_bytes == SHAPE.arrays * SHAPE.heads * 4 * PAGE


PAGEMAP = Path("/proc/self/pagemap")


def taken_bytes(memory: HostMemory) -> int:
    """Return what the system counts for a memory alone, whatever else the process takes meanwhile.

    A page has 8 bytes in /proc/self/pagemap; of them bit 63 says that it is there, and bit 62 that it was swapped out.
    """
    values = memory._values
    with PAGEMAP.open("rb", buffering=0) as file:
        file.seek(values.ctypes.data // PAGE * 8)
        pages = np.frombuffer(file.read(values.nbytes // PAGE * 8), np.uint64)
    assert len(pages) == values.nbytes // PAGE
    return int(np.count_nonzero(pages >> np.uint64(62))) * PAGE


@pytest.mark.skipif(not PAGEMAP.exists(), reason="the system does not tell which pages are taken")
def test_the_system_counts_the_same_pages() -> None:
    memory = HostMemory(MemoryShape(arrays=2, slots=32, heads=8, length=1024, width=64, dtype="float32"))
    assert taken_bytes(memory) == 0
    for slot in range(32):
        memory.write(slot, 0, [np.ones((8, 500 + slot, 64), np.float32)] * 2)
    assert taken_bytes(memory) == memory.used_bytes > 2**25
    memory.hold(0, np.full(16, 100))
    memory.forget(16)
    memory.release()

    assert taken_bytes(memory) == memory.used_bytes == 2 * 8 * 16 * 7 * PAGE


@pytest.mark.parametrize("seed", range(5))
def test_slots_keep_their_tokens_when_they_get_more_room(seed: int) -> None:
    rng = random.Random(seed)
    memory, length, held = HostMemory(SHAPE), rng.randint(1, 20), [0] * SHAPE.slots
    memory.lay_out(length, live=0)
    while length < 200:
        for slot in range(SHAPE.slots):
            held[slot] = rng.randint(1, length)
            memory.write(slot, 0, tokens(held[slot], slot))
        live, length = rng.randint(1, SHAPE.slots), length + rng.randint(1, 60)
        memory.forget(live)
        memory.lay_out(length, live)
        for slot in range(live):
            np.testing.assert_array_equal(memory.read(slot, 0, held[slot]), tokens(held[slot], slot))
        assert memory.view(0, 0, 2).shape == (2, SHAPE.heads, length, SHAPE.width)


def test_room_made_to_measure_uses_the_pages_that_are_there() -> None:
    memory = HostMemory(SHAPE)
    memory.lay_out(32, live=0)
    for slot in range(4):
        memory.write(slot, 0, tokens(32))
    memory.forget(0)
    memory.lay_out(16, live=0)

    assert memory.used_bytes == SHAPE.arrays * SHAPE.heads * 6 * PAGE  # all slots of half the length, none twice
    memory.release()
    assert memory.used_bytes == 0


def test_heads_share_no_page() -> None:
    assert whole_pages(1000, 256) == 1008 and whole_pages(1024, 256) == 1024
    assert whole_pages(1000, 320) == 1024 and whole_pages(1, 3 * PAGE) == 1


def test_too_much_address_space_is_an_error_that_says_what_to_lower() -> None:
    with pytest.raises(MemoryError, match="lower max_slots"):
        HostMemory(MemoryShape(arrays=2**10, slots=1024, heads=64, length=2**20, width=64, dtype="float32"))
