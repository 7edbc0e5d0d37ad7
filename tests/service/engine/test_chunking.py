"""Prompts in chunks: whose turn a prefill is, who shares one, and what is known of it before."""

from __future__ import annotations

import pytest

from service.engine.batch import Decode, Prefill
from service.engine.prefix_cache import BLOCK_TOKENS
from tests.service.engine.schedules import (
    advance,
    choices,
    make_scheduler,
    make_sequence,
    of_client,
    sequences_of,
)


def test_a_long_prompt_goes_in_chunks_of_the_budget() -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    scheduler.add(make_sequence(prompt=40))

    batches = [advance(scheduler) for _ in range(4)]
    assert [[chunk.tokens for chunk in batch.chunks] for batch in batches if isinstance(batch, Prefill)] == [
        [16],
        [16],
        [7],
    ]
    assert isinstance(batches[-1], Decode)


@pytest.mark.parametrize("clients", ["aa", "ab"])
def test_a_newcomer_does_not_wait_for_the_whole_of_a_long_prompt(clients: str) -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    long, short = (of_client(client, make_sequence(size)) for client, size in zip(clients, (200, 4), strict=True))
    scheduler.add(long)
    advance(scheduler)
    scheduler.add(short)

    assert [sequences_of(advance(scheduler)) for _ in range(3)] == [[short], [short], [long]]
    while not long.is_prefilled:
        advance(scheduler)


@pytest.mark.parametrize("others", [0, 1, 8, 30])
def test_a_newcomer_does_not_wait_for_the_long_prompts_that_came_before_it(others: int) -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    long = [make_sequence(prompt=100 + place) for place in range(1 + others)]
    for sequence in long:
        scheduler.add(sequence)
    advance(scheduler)
    scheduler.add(short := make_sequence(prompt=4, max_tokens=1))

    assert short in [*sequences_of(advance(scheduler)), *sequences_of(advance(scheduler))]
    begun = []
    while not all(sequence.is_prefilled for sequence in long):
        begun += [sequence for sequence in sequences_of(advance(scheduler)) if sequence in long]
    assert list(dict.fromkeys(begun)) == [each for each in long if each in begun]  # each in its turn


def test_a_newcomer_of_several_prefills_comes_before_a_prompt_that_has_more_left() -> None:
    scheduler = make_scheduler(prefill_tokens=16, max_blocks=64)
    scheduler.add(known := make_sequence(prompt=65, max_tokens=1))
    while not known.is_prefilled:
        advance(scheduler)
    scheduler.add(long := make_sequence(prompt=900))
    advance(scheduler)
    scheduler.add(shorter := make_sequence(prompt=40))
    scheduler.add(continued := make_sequence(prompt=66))  # of which the first's blocks are known
    while not (shorter.is_prefilled and continued.is_prefilled):
        advance(scheduler)

    assert not long.is_prefilled and long.computed < 200


def test_who_asks_the_same_while_it_is_computed_has_all_of_it_in_a_slot_of_its_own() -> None:
    scheduler = make_scheduler(max_blocks=32, prefill_tokens=32)
    first, again = make_sequence(prompt=200), make_sequence(prompt=200)
    scheduler.add(first)
    advance(scheduler)
    scheduler.add(again)
    filled = {first: 32, again: 0}  # tokens that stand in each one's slot
    while not (first.is_prefilled and again.is_prefilled):
        batch = advance(scheduler)
        for chunk in batch.chunks if isinstance(batch, Prefill) else []:
            begin = chunk.sequence.computed - chunk.tokens
            if chunk.restored:
                filled[chunk.sequence] = len(chunk.restored) * BLOCK_TOKENS
            for sequence in (chunk.sequence, *chunk.sharers):
                assert filled[sequence] == begin
                filled[sequence] = sequence.computed

    assert not scheduler._chunking.restored


def test_a_prompt_that_is_half_computed_stays_where_it_is_as_others_end_and_come() -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    streams = [make_sequence(prompt=4, max_tokens=most) for most in (4, 40, 40)]
    for sequence in streams:
        scheduler.add(sequence)
    advance(scheduler)
    long = make_sequence(prompt=200)
    scheduler.add(long)
    while not long.slots:
        advance(scheduler)
    (slot,) = long.slots
    while not long.is_prefilled:
        scheduler.add(make_sequence(prompt=3, max_tokens=2))
        batch = advance(scheduler)
        assert long.slots == [slot] and all(copy.origin != slot for copy in batch.copies)


def test_a_long_prompt_has_every_other_prefill_however_many_shorter_ones_come() -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    long = make_sequence(prompt=200)
    scheduler.add(long)
    prefills = []
    while not long.is_prefilled:
        scheduler.add(make_sequence(prompt=40, max_tokens=1))
        batch = advance(scheduler)
        if isinstance(batch, Prefill):
            prefills.append(long in batch.sequences)

    assert len(prefills) <= 2 * 13


def test_a_prefill_keeps_to_its_padded_token_budget() -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    for prompt in (4, 5, 6, 7):
        scheduler.add(make_sequence(prompt))

    batch = advance(scheduler)
    assert len(sequences_of(batch)) == 2  # a third would make 3 × 6 = 18


def test_alike_prompts_share_one_prefill() -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    alike, other = [make_sequence(prompt=12) for _ in range(3)], make_sequence(prompt=3)
    for sequence in (*alike, other):
        scheduler.add(sequence)

    batch = advance(scheduler)
    assert isinstance(batch, Prefill)
    assert [(chunk.sequence, chunk.sharers) for chunk in batch.chunks] == [(alike[0], alike[1:])]  # within the budget
    assert [sequence.computed for sequence in alike] == [11, 11, 11]


def test_a_sharer_goes_on_when_the_one_that_computes_leaves() -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    first, second = make_sequence(prompt=40), make_sequence(prompt=40)
    scheduler.add(first)
    scheduler.add(second)
    advance(scheduler)
    scheduler.abort(first)

    batch = advance(scheduler)
    assert isinstance(batch, Prefill) and [chunk.sequence for chunk in batch.chunks] == [second]
    assert second.computed == 32


def test_a_known_beginning_is_not_computed_again() -> None:
    scheduler = make_scheduler(max_blocks=8, prefill_tokens=64)
    scheduler.add(make_sequence(prompt=40, max_tokens=1))
    advance(scheduler)
    advance(scheduler)
    scheduler.add(make_sequence(prompt=50))

    batch = advance(scheduler)
    assert isinstance(batch, Prefill)
    (chunk,) = batch.chunks
    assert (len(chunk.restored), chunk.tokens) == (2, 49 - 32)
    assert scheduler.prefix_cache.hit_tokens == 32


def test_clients_share_neither_what_is_known_nor_a_prefill() -> None:
    scheduler = make_scheduler(max_blocks=8, prefill_tokens=256)
    scheduler.add(of_client("ada", make_sequence(prompt=40, max_tokens=1)))
    advance(scheduler)
    advance(scheduler)
    for client in ("ada", "bob", "bob"):
        scheduler.add(of_client(client, make_sequence(prompt=40)))

    batch = advance(scheduler)
    assert isinstance(batch, Prefill)
    assert sorted(
        (chunk.sequence.permit.client, len(chunk.restored), len(chunk.sharers)) for chunk in batch.chunks
    ) == [
        ("ada", 2, 0),
        ("bob", 0, 1),
    ]


@pytest.mark.parametrize("remaining", [1, 16, 17, 18, 33, 40])
def test_no_chunk_is_a_single_token_unless_the_prompt_is(remaining: int) -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    scheduler.add(make_sequence(prompt=remaining + 1, max_tokens=1))
    batches = []
    while (batch := scheduler.schedule()) is not None:
        batches.append(batch)
        scheduler.update(batch, choices(batch))

    tokens = [chunk.tokens for batch in batches if isinstance(batch, Prefill) for chunk in batch.chunks]
    assert sum(tokens) == remaining and (1 not in tokens or remaining == 1)
