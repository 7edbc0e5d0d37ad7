from __future__ import annotations

import numpy as np
import pytest

from model.package import CacheShape
from service.engine.kv_cache import FIRST_LENGTH, FIRST_SLOTS, Copy, KVCache
from service.engine.session import Array

SHAPE = CacheShape(num_layers=2, num_kv_heads=3, head_dim=4)


def make_cache(has_cross: bool = False) -> KVCache:
    return KVCache(SHAPE, max_slots=40, max_length=300, has_cross=has_cross)


def arrays(cache: KVCache, slot: int, prefix: str = "past") -> list[Array]:
    inputs, _ = cache.bind(slot, 1)
    return [array for name, array in inputs.items() if name.startswith(prefix)]


def fill(cache: KVCache, slot: int, value: float) -> None:
    for array in arrays(cache, slot):
        array[:] = value


def values(cache: KVCache, slot: int, tokens: slice = slice(5)) -> set[float]:
    return {float(v) for array in arrays(cache, slot) for v in np.unique(array[:, :, tokens])}


def test_memory_grows_and_keeps_what_it_holds() -> None:
    cache = make_cache()
    fill(cache, 3, 7.0)
    before = cache.generation
    cache.reserve(slots=FIRST_SLOTS + 1, length=FIRST_LENGTH + 1)

    assert (cache.slots, cache.length) == (2 * FIRST_SLOTS, FIRST_LENGTH + FIRST_LENGTH // 2)
    assert cache.generation > before
    assert values(cache, 3) == {7.0}


def test_memory_does_not_grow_past_what_can_be_needed() -> None:
    cache = make_cache()
    cache.reserve(slots=1, length=FIRST_LENGTH + 1, longest=FIRST_LENGTH + 5)

    assert cache.length == FIRST_LENGTH + 5


def test_memory_does_not_grow_past_its_limits() -> None:
    cache = make_cache()
    cache.reserve(slots=40, length=300)

    assert (cache.slots, cache.length) == (40, 300)
    with pytest.raises(ValueError, match="exceed 40 × 300"):
        cache.reserve(slots=41, length=1)


def test_what_a_long_sequence_took_is_given_back() -> None:
    cache = make_cache()
    cache.reserve(slots=1, length=300)
    fill(cache, 0, 7.0)
    cache.reserve(slots=1, length=160)
    assert cache.length == 300  # more than half is in use

    cache.reserve(slots=1, length=40)
    assert cache.length == 40
    assert values(cache, 0, slice(40)) == {7.0}


def test_sources_have_no_more_room_than_they_need() -> None:
    cache = make_cache(has_cross=True)
    cache.reserve(slots=2, length=1, source_length=50, live=0)
    assert cache.source_length == 50
    cache.store_source(1, [np.full((3, 50, 4), 9.0, np.float32)] * 4, length=50)
    cache.reserve(slots=2, length=1, source_length=45)
    assert cache.source_length == 50  # hardly less: not worth a move

    cache.reserve(slots=2, length=1, source_length=20)
    assert cache.source_length == 20
    assert arrays(cache, 1, "cross_key")[0][0, 0, 19, 0] == 9.0
    cache.reserve(slots=2, length=1, source_length=19, live=0)
    assert cache.source_length == 19  # made to measure, as there is nothing to move


def test_bound_arrays_are_the_memory_itself() -> None:
    cache = make_cache()
    inputs, outputs = cache.bind(2, 3)

    assert set(inputs) == {"past_key_0", "past_value_0", "past_key_1", "past_value_1"}
    assert set(outputs) == {name.replace("past", "present") for name in inputs}
    assert inputs["past_key_0"].shape == (3, 3, FIRST_LENGTH, 4) and inputs["past_key_0"].flags.c_contiguous
    assert np.shares_memory(inputs["past_key_0"], outputs["present_key_0"])
    fill(cache, 3, 0.0)
    outputs["present_key_0"][1] = 5
    assert values(cache, 3) == {0.0, 5.0}


def test_a_copy_takes_the_tokens_it_names() -> None:
    cache = make_cache()
    fill(cache, 1, 1.0)
    fill(cache, 4, 0.0)
    cache.copy([Copy(4, 1, start=2, stop=4, with_source=False)])

    assert values(cache, 4, slice(2, 4)) == {1.0}
    assert values(cache, 4, slice(2)) == {0.0} and values(cache, 4, slice(4, 6)) == {0.0}


def test_sources_are_copied_only_where_asked() -> None:
    cache = make_cache(has_cross=True)
    cache.reserve(slots=3, length=1, source_length=6)
    for slot, value in ((0, 9.0), (2, 0.0)):
        cache.store_source(slot, [np.full((3, 6, 4), value, np.float32)] * 4, length=6)
    cache.copy([Copy(1, 0, 0, 1, with_source=True), Copy(2, 0, 0, 1, with_source=False)])

    assert arrays(cache, 1, "cross_key")[0][0, 0, 5, 0] == arrays(cache, 1, "last_key")[0][0, 0, 0] == 9.0
    assert arrays(cache, 2, "cross_key")[0][0, 0, 5, 0] == arrays(cache, 2, "last_key")[0][0, 0, 0] == 0.0


def test_a_generator_has_no_sources_to_copy() -> None:
    cache = make_cache()
    cache.reserve(slots=2 * FIRST_SLOTS, length=1)
    fill(cache, FIRST_SLOTS + 1, 1.0)
    cache.copy([Copy(0, FIRST_SLOTS + 1, 0, 5, with_source=True)])

    assert values(cache, 0) == {1.0}


def test_the_last_token_of_a_source_is_that_of_its_own_length() -> None:
    cache = make_cache(has_cross=True)
    cache.reserve(slots=1, length=1, source_length=6)
    source = np.arange(3 * 6 * 4, dtype=np.float32).reshape(3, 6, 4)
    cache.store_source(0, [source] * 4, length=5)

    np.testing.assert_array_equal(arrays(cache, 0, "last_value")[1].ravel(), source[:, 4].ravel())


def test_tokens_read_can_be_written_elsewhere() -> None:
    cache = make_cache()
    fill(cache, 1, 1.0)
    fill(cache, 2, 0.0)
    cache.write(2, 3, cache.read(1, 0, 2))

    assert values(cache, 2, slice(3, 5)) == {1.0} and values(cache, 2, slice(3)) == {0.0}
