from __future__ import annotations

import random

import numpy as np

from model.training.batches import equal_batches, length_batches


def test_batches_hold_everything_once_within_the_budget() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(1, 40) for _ in range(500)]

    batches = length_batches(lengths, 128, rng)

    assert sorted(index for batch in batches for index in batch) == list(range(500))
    assert all(max(lengths[index] for index in batch) * len(batch) <= 128 for batch in batches)


def test_an_example_longer_than_the_budget_has_a_batch_of_its_own() -> None:
    assert length_batches([3, 200], 100, None) == [[0], [1]]


def test_a_batch_holds_no_more_than_it_may() -> None:
    assert length_batches([1, 1, 1, 1, 1], 100, None, most=2) == [[0, 1], [2, 3], [4]]


def test_batches_of_one_size_leave_out_a_rest_in_training_alone() -> None:
    assert equal_batches(range(5), 2, None) == [[0, 1], [2, 3], [4]]
    assert [len(batch) for batch in equal_batches(range(5), 2, random.Random(0))] == [2, 2]
    assert sorted(equal_batches(range(3), 4, random.Random(0))[0]) == [0, 1, 2]  # for there is nothing else
    assert equal_batches(range(2), 0, None) == [[0], [1]]  # of what is larger than a batch


def test_what_is_kept_apart_fills_other_batches() -> None:
    copies = [frozenset((index % 30,)) for index in range(120)]  # four of each

    batches = length_batches([5] * 120, 50, random.Random(0), apart=copies)

    assert sorted(index for batch in batches for index in batch) == list(range(120))
    assert all(len(batch) == len({index % 30 for index in batch}) <= 10 for batch in batches)
    assert len(batches) <= 12 + 3  # the last copies may find no batch with others


def test_batches_of_similar_lengths_waste_little() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(1, 100) for _ in range(2000)]

    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in length_batches(lengths, 2000, rng))
    assert padded < 1.05 * sum(lengths)


def test_both_sides_of_a_batch_of_pairs_are_of_similar_lengths() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 20, (5000, 2))

    batches = length_batches(lengths, 500, random.Random(0))

    assert sorted(index for batch in batches for index in batch) == list(range(5000))
    assert all(lengths[batch].max() * len(batch) <= 500 for batch in batches)
    padded = sum(int(lengths[batch].max(axis=0).sum()) * len(batch) for batch in batches)
    assert padded < 1.1 * lengths.sum()  # in the order of the longer side alone 1.2 times as many


def test_epochs_differ_and_repeat_by_their_seed() -> None:
    lengths = [5] * 100

    one, again, other = (length_batches(lengths, 20, random.Random(seed)) for seed in (1, 1, 2))
    assert one == again != other
