from __future__ import annotations

import numpy as np
import pytest

from model.package import CacheShape
from service.engine.kv_cache import FIRST_LENGTH, FIRST_SLOTS, KVCache

SHAPE = CacheShape(num_layers=2, num_kv_heads=3, head_dim=4)


def make_cache(has_cross: bool = False) -> KVCache:
    return KVCache(SHAPE, max_slots=40, max_length=300, has_cross=has_cross)


def fill(cache: KVCache, slot: int, value: float) -> None:
    for _, array in cache.bind(slot, 1).values():
        array[:] = value


def values(cache: KVCache, slot: int, tokens: int = 5) -> set[float]:
    return {float(v) for _, array in cache.bind(slot, 1).values() for v in np.unique(array[:, :, :tokens])}


def test_memory_grows_by_doubling_and_keeps_what_it_holds() -> None:
    cache = make_cache()
    fill(cache, 3, 7.0)
    cache.reserve(slots=FIRST_SLOTS + 1, length=FIRST_LENGTH + 1)

    assert (cache.slots, cache.length) == (2 * FIRST_SLOTS, 2 * FIRST_LENGTH)
    assert values(cache, 3) == {7.0}


def test_memory_does_not_grow_past_its_limits() -> None:
    cache = make_cache()
    cache.reserve(slots=40, length=300)

    assert (cache.slots, cache.length) == (40, 300)
    with pytest.raises(ValueError, match="exceed 40 × 300"):
        cache.reserve(slots=41, length=1)


def test_bound_arrays_are_the_memory_itself() -> None:
    cache = make_cache()
    bound = cache.bind(2, 3)

    assert set(bound) == {"past_key_0", "past_value_0", "past_key_1", "past_value_1"}
    output, array = bound["past_key_0"]
    assert output == "present_key_0" and array.shape == (3, 3, FIRST_LENGTH, 4)
    assert array.flags.c_contiguous
    array[:] = 5
    assert values(cache, 4) == {0.0, 5.0}


def test_a_copy_takes_the_computed_tokens() -> None:
    cache = make_cache()
    fill(cache, 1, 1.0)
    cache.copy([4, 5], [1, 1], length=3, cross_pairs=[True, True])

    assert values(cache, 4, tokens=3) == {1.0}
    assert values(cache, 5) == {0.0, 1.0}


def test_sources_are_copied_only_where_asked() -> None:
    cache = make_cache(has_cross=True)
    cache.store_source(0, [np.full((3, 6, 4), 9.0, np.float32)] * 4)
    cache.copy([1, 2], [0, 0], length=1, cross_pairs=[True, False])

    assert cache.bind(1, 1)["cross_key_0"][1][0, 0, 5, 0] == 9.0
    assert cache.bind(2, 1)["cross_key_0"][1][0, 0, 5, 0] == 0.0
