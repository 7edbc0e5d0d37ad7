from __future__ import annotations

import numpy as np
import pytest

from model.package import CacheShape
from service.engine.arrays import Array, View
from service.engine.kv_cache import Copy, KVBudget, KVCache
from service.engine.memory import PAGE

SHAPE = CacheShape(num_layers=2, num_kv_heads=3, head_dim=4)


def make_cache(has_cross: bool = False, capacity_bytes: int | None = None) -> KVCache:
    return KVCache(SHAPE, max_slots=40, max_length=300, has_cross=has_cross, capacity_bytes=capacity_bytes)


def arrays(cache: KVCache, slot: int, prefix: str = "past", count: int = 1) -> dict[str, Array]:
    inputs, _ = cache.bind(slot, count)
    return {name: memory_of(view) for name, view in inputs.items() if name.startswith(prefix)}


def memory_of(view: View) -> Array:
    assert isinstance(view.owner, np.ndarray) and view.address == view.owner.ctypes.data
    assert view.owner.flags.c_contiguous
    return view.owner.reshape(view.shape)


def fill(cache: KVCache, slot: int, value: float, tokens: int = 5) -> None:
    cache.write(slot, 0, np.full((4, 3, tokens, 4), value, np.float32))


class Encoder:
    """Stands for an encoder that projects this of any source."""

    def __init__(self, projected: Array) -> None:
        self.projected = projected

    def run(self, inputs: object, outputs: list[str]) -> list[Array]:
        return [self.projected[None]] * 4


def store_source(cache: KVCache, slot: int, source: Array, length: int | None = None) -> None:
    lengths = np.array([source.shape[1] if length is None else length])
    cache.encode_sources(Encoder(source), {}, [], slot, lengths)  # type: ignore[arg-type]  # no graph is needed


def values(cache: KVCache, slot: int, tokens: slice = slice(5)) -> set[float]:
    return {float(v) for array in arrays(cache, slot).values() for v in np.unique(array[:, :, tokens])}


def test_nothing_moves_when_slots_and_lengths_grow() -> None:
    cache = make_cache()
    fill(cache, 3, 7.0)
    before, _ = cache.bind(0, 1)
    cache.make_room(slots=40, length=300, live=4)
    after, _ = cache.bind(0, 1)

    assert {name: view.address for name, view in before.items()} == {n: view.address for n, view in after.items()}
    assert cache.generation == 0 and values(cache, 3) == {7.0}


def test_a_step_past_the_limits_is_refused() -> None:
    with pytest.raises(ValueError, match="exceed 40 × 300"):
        make_cache().make_room(slots=41, length=1, live=0)


def test_one_long_sequence_costs_what_it_is_long() -> None:
    cache = make_cache()
    for slot in range(8):
        fill(cache, slot, 1.0)
    short = cache.used_bytes
    fill(cache, 8, 1.0, tokens=300)

    assert cache.used_bytes - short == 300 // (PAGE // 16) * PAGE * 12 + PAGE * 12


def test_memory_of_ended_sequences_stays_until_the_budget_is_reached() -> None:
    a_slot = 12 * PAGE
    cache = make_cache(capacity_bytes=5 * a_slot)
    for slot in range(5):
        fill(cache, slot, 7.0)
    cache.make_room(slots=2, length=5, live=2)
    assert cache.used_bytes == 5 * a_slot
    fill(cache, 5, 7.0)  # a sixth
    cache.make_room(slots=2, length=5, live=2)

    assert cache.used_bytes == 2 * a_slot
    assert values(cache, 1) == {7.0} and values(cache, 2) == {0.0}


def test_what_a_step_is_to_write_has_room_beside_what_is_kept() -> None:
    a_slot = 12 * PAGE
    cache = make_cache(capacity_bytes=5 * a_slot)
    for slot in range(4):
        fill(cache, slot, 7.0)
    tokens = 2 * a_slot // cache.bytes_per_token
    cache.make_room(slots=3, length=5, live=1, writes=lambda: tokens // 2)
    assert cache.used_bytes == 4 * a_slot
    cache.make_room(slots=3, length=5, live=1, writes=lambda: tokens)  # to two slots, which hold nothing that is needed

    assert cache.used_bytes == a_slot
    assert values(cache, 0) == {7.0}


def test_a_cache_at_rest_takes_no_memory() -> None:
    cache = make_cache(has_cross=True)
    fill(cache, 0, 7.0)
    store_source(cache, 0, np.full((3, 50, 4), 9.0, np.float32))
    cache.release_all()

    assert cache.used_bytes == 0


def test_the_budget_counts_rows_in_whole_pages_and_sources_too() -> None:
    cache = make_cache(has_cross=True, capacity_bytes=PAGE * 12 * 10)
    step = PAGE // 16  # tokens of four float32 in a page

    assert cache.budget == KVBudget(tokens=10 * step, step=step)
    assert cache.budget.cost(4, 5, 3) == 8 * step
    assert cache.budget.cost(1, step + 1) == 2 * step
    assert make_cache().budget.tokens == 40 * 512  # a slot's room, in whole pages


def test_sources_have_no_more_room_than_they_need_until_a_longer_one_comes() -> None:
    cache = make_cache(has_cross=True)
    cache.make_room(slots=2, length=1, source_length=50, live=0)
    store_source(cache, 1, np.full((3, 50, 4), 9.0, np.float32))
    assert arrays(cache, 0, "cross")["cross_key_0"].shape == (1, 3, 50, 4)
    cache.make_room(slots=2, length=1, source_length=51, live=2)
    grown = arrays(cache, 1, "cross")["cross_key_0"]
    assert grown.shape == (1, 3, 100, 4) and set(grown[0, :, :50].ravel()) == {9.0}

    cache.make_room(slots=2, length=1, source_length=20, live=2)
    assert arrays(cache, 0, "cross")["cross_key_0"].shape == (1, 3, 100, 4)
    cache.make_room(slots=2, length=1, source_length=19, live=0)
    assert arrays(cache, 0, "cross")["cross_key_0"].shape == (1, 3, 19, 4)  # as there is nothing to move


def test_bound_arrays_are_the_memory_itself() -> None:
    cache = make_cache()
    inputs, outputs = cache.bind(2, 3)

    assert set(inputs) == {"past_key_0", "past_value_0", "past_key_1", "past_value_1"}
    assert set(outputs) == {name.replace("past", "present") for name in inputs}
    assert inputs["past_key_0"].shape == (3, 3, 512, 4)
    assert inputs["past_key_0"].address == outputs["present_key_0"].address
    fill(cache, 3, 0.0)
    memory_of(outputs["present_key_0"])[1] = 5
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
    cache.make_room(slots=3, length=1, source_length=6, live=0)
    for slot, value in ((0, 9.0), (2, 0.0)):
        store_source(cache, slot, np.full((3, 6, 4), value, np.float32))
    cache.copy([Copy(1, 0, 0, 1, with_source=True), Copy(2, 0, 0, 1, with_source=False)])

    for slot, value in ((1, 9.0), (2, 0.0)):
        sources = arrays(cache, slot, "cross") | arrays(cache, slot, "last")
        assert sources["cross_key_0"][0, 0, 5, 0] == sources["last_key_0"][0, 0, 0] == value


def test_a_generator_has_no_sources_to_copy() -> None:
    cache = make_cache()
    fill(cache, 9, 1.0)
    cache.copy([Copy(0, 9, 0, 5, with_source=True)])

    assert values(cache, 0) == {1.0}


def test_the_last_token_of_a_source_is_that_of_its_own_length() -> None:
    cache = make_cache(has_cross=True)
    cache.make_room(slots=1, length=1, source_length=6, live=0)
    source = np.arange(3 * 6 * 4, dtype=np.float32).reshape(3, 6, 4)
    store_source(cache, 0, source, length=5)

    np.testing.assert_array_equal(arrays(cache, 0, "last")["last_value_1"].ravel(), source[:, 4].ravel())


def test_tokens_read_can_be_written_elsewhere() -> None:
    cache = make_cache()
    fill(cache, 1, 1.0)
    fill(cache, 2, 0.0)
    cache.write(2, 3, cache.read(1, 0, 2))

    assert values(cache, 2, slice(3, 5)) == {1.0} and values(cache, 2, slice(3)) == {0.0}
