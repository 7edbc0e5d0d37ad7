from __future__ import annotations

import random

import numpy as np
import pytest

from service.engine.slot_array import SlotArray


def numbered(array: SlotArray, slots: int) -> None:
    for slot in range(slots):
        array.values[:, slot] = np.arange(array.values[:, slot].size).reshape(array.values[:, slot].shape) + 1000 * slot


@pytest.mark.parametrize("seed", range(10))
def test_slots_keep_their_tokens_through_any_change_of_shape(seed: int) -> None:
    rng = random.Random(seed)
    array = SlotArray(arrays=3, heads=2, width=4, dtype="float32")
    array.reshape(5, 6, live=0)
    numbered(array, 5)
    expected = array.values.copy()
    for _ in range(30):
        live, slots, length = rng.randint(0, array.slots), rng.randint(1, 20), rng.randint(1, 30)
        array.reshape(slots, length, live)
        live, tokens = min(live, slots), min(length, expected.shape[3])
        np.testing.assert_array_equal(array.values[:, :live, :, :tokens], expected[:, :live, :, :tokens])
        numbered(array, slots)
        expected = array.values.copy()


def test_memory_that_was_touched_is_used_again() -> None:
    array = SlotArray(arrays=2, heads=2, width=4, dtype="float32")
    array.reshape(4, 16, live=0)
    first = array.values
    array.reshape(2, 8, live=2)
    array.reshape(8, 8, live=2)

    assert np.shares_memory(first, array.values)
