from __future__ import annotations

import os.path
import random
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.admission import Admission, AdmissionLimits, Permit
from service.engine.batch import Decode, Prefill
from service.engine.logprobs import SampledToken
from service.engine.prefix_cache import BLOCK_TOKENS
from service.engine.sequence import Sampling, Sequence
from service.engine.slots import _agreement
from tests.service.engine.schedules import (
    advance,
    choices,
    make_scheduler,
    make_sequence,
    of_client,
    sequences_of,
)


def test_a_late_request_joins_the_running_batch() -> None:
    scheduler = make_scheduler()
    early, late = make_sequence(prompt=3), make_sequence(prompt=5)

    scheduler.add(early)
    advance(scheduler)
    advance(scheduler)
    scheduler.add(late)

    assert sequences_of(advance(scheduler)) == [late]  # its prefill
    assert sequences_of(advance(scheduler)) == [early, late]  # then both decode together


def test_prefill_and_decode_take_turns_so_that_nobody_stalls() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence())
    advance(scheduler)
    scheduler.add(make_sequence(prompt=100))

    kinds = [type(advance(scheduler)).__name__ for _ in range(8)]
    assert kinds == ["Decode", "Prefill"] * 4


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

    assert not scheduler._restored


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


def test_first_come_first_served() -> None:
    scheduler = make_scheduler(max_slots=2)
    sequences = [make_sequence(prompt=2, max_tokens=2) for _ in range(6)]
    for sequence in sequences:
        scheduler.add(sequence)

    finished: list[Sequence] = []
    while (batch := scheduler.schedule()) is not None:
        scheduler.check_integrity()
        scheduler.update(batch, choices(batch))
        finished += [sequence for sequence in sequences_of(batch) if not sequence.slots]
    assert finished == sequences


def test_a_finished_row_is_replaced_by_the_last_one() -> None:
    scheduler = make_scheduler()
    sequences = [make_sequence(prompt=1) for _ in range(4)]
    for sequence in sequences:
        scheduler.add(sequence)
    advance(scheduler)
    advance(scheduler)
    scheduler.abort(sequences[1])

    batch = advance(scheduler)
    assert isinstance(batch, Decode)
    assert [(copy.target, copy.origin) for copy in batch.copies] == [(1, 3)]
    assert [sequence.slots for sequence in batch.sequences] == [[0], [2], [1]]


def test_a_search_is_promised_its_whole_width() -> None:
    scheduler = make_scheduler(max_slots=6)
    searches = [make_sequence(prompt=1, beam_size=4), make_sequence(prompt=1, beam_size=4)]
    for search in searches:
        scheduler.add(search)

    for _ in range(4):
        assert sequences_of(advance(scheduler)) == searches[:1]
    assert scheduler.slots_used == 4 and scheduler.waiting_sequences == 1


def test_beams_spread_from_one_row() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(prompt=3, beam_size=3))
    advance(scheduler)
    advance(scheduler)
    second = scheduler.schedule()

    assert isinstance(second, Decode)
    assert sorted(second.sequences[0].slots) == [0, 1, 2]
    assert {copy.origin for copy in second.copies} == {0}
    assert all(copy.with_source and copy.start == 0 for copy in second.copies)  # new slots need everything


def test_reordered_beams_keep_their_source() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(prompt=1, source=3, beam_size=3))
    batches = [advance(scheduler, random.Random(seed)) for seed in range(8)]

    later = [copy for batch in batches[3:] for copy in batch.copies]
    assert later and not any(copy.with_source for copy in later)


def test_a_source_is_computed_before_the_first_token() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(prompt=1, source=5))

    assert isinstance(advance(scheduler), Prefill)
    assert isinstance(advance(scheduler), Decode)


def test_an_aborted_sequence_returns_its_slot() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence()
    scheduler.add(sequence)
    advance(scheduler)
    scheduler.abort(sequence)

    assert scheduler.schedule() is None
    assert scheduler.slots_used == 0


def test_who_waits_behind_a_search_that_has_no_room_goes_in_when_that_is_aborted() -> None:
    scheduler = make_scheduler(max_slots=8, max_decodes_between=1)
    for _ in range(6):
        scheduler.add(make_sequence())
    advance(scheduler)
    advance(scheduler)
    wide, narrow = make_sequence(beam_size=4), make_sequence()
    scheduler.add(wide)
    scheduler.add(narrow)
    for _ in range(4):
        advance(scheduler)
    assert not wide.slots and not narrow.slots

    scheduler.abort(wide)
    for _ in range(4):
        advance(scheduler)
    assert narrow.slots


def test_what_runs_is_no_longer_counted_among_what_waits() -> None:
    scheduler, admission = make_scheduler(), Admission(AdmissionLimits())
    sequence = make_sequence(prompt=4)
    sequence.permit = admission.admit("", 1, 4)
    scheduler.add(sequence)
    advance(scheduler)

    assert (admission.waiting_slots, admission.waiting_tokens) == (0, 0)


@pytest.mark.parametrize(("source", "prefilled"), [(0, 3), (5, 3 + 5)])
def test_a_request_is_charged_once_for_the_prompt_of_all_its_choices_and_for_each_token(
    source: int, prefilled: int
) -> None:
    scheduler, permit = make_scheduler(), Permit.of_one()
    for _ in range(3):
        sequence = make_sequence(prompt=4, source=source)
        sequence.permit = permit
        scheduler.add(sequence)
    advance(scheduler)
    assert permit.spending.tokens == prefilled

    advance(scheduler)
    assert permit.spending.tokens == prefilled + 3


def test_an_abort_during_a_step_takes_effect_after_it() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence(prompt=1)
    scheduler.add(sequence)
    advance(scheduler)
    batch = scheduler.schedule()
    assert isinstance(batch, Decode)
    scheduler.abort(sequence)
    scheduler.update(batch, [SampledToken(5)])

    assert scheduler.schedule() is None
    assert not isinstance(sequence.decoding, Sampling) or sequence.decoding.output_ids == []


def test_reordered_beams_copy_only_what_is_not_theirs_already() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(prompt=4, beam_size=3))
    rng = random.Random(6)
    copies = []
    while (batch := scheduler.schedule()) is not None:
        scheduler.check_integrity()
        copies += batch.copies
        scheduler.update(batch, choices(batch, rng))

    siblings = [copy for copy in copies if not copy.with_source]
    assert len(siblings) > 5 and all(4 <= copy.start < copy.stop for copy in siblings)
    assert any(copy.start > 4 for copy in siblings)  # beyond the prompt they share what came before they parted


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


@pytest.mark.parametrize("seed", range(30))
def test_random_joins_leaves_and_aborts_never_leak(seed: int) -> None:
    rng = random.Random(seed)
    scheduler = make_scheduler(rng.choice([0, 2, 9]), max_slots=rng.randint(4, 12), prefill_tokens=rng.choice([16, 64]))
    alive: list[Sequence] = []
    for _ in range(300):
        if rng.random() < 0.3:
            sequence = make_sequence(
                rng.randint(1, 20), rng.randint(1, 12), rng.choice([0, 0, 2, 3, 4]), rng.choice([0, 6])
            )
            scheduler.add(of_client(rng.choice("abc"[: 1 + seed % 3]), sequence))
            alive.append(sequence)
        if alive and rng.random() < 0.1:
            scheduler.abort(alive.pop(rng.randrange(len(alive))))
        batch = scheduler.schedule()
        scheduler.check_integrity()
        if batch is None:
            continue
        assert not {copy.target for copy in batch.copies} & {copy.origin for copy in batch.copies}
        if isinstance(batch, Prefill) and len(batch.chunks) > 1:
            longest = max(max(len(chunk.sequence.source_ids or ()), chunk.tokens) for chunk in batch.chunks)
            assert longest * len(batch.chunks) <= scheduler.limits.prefill_tokens
        if alive and rng.random() < 0.1:
            scheduler.abort(rng.choice(alive))
        scheduler.update(batch, choices(batch, rng), seconds=rng.random() / 10)
    scheduler.fail_all()

    assert scheduler.schedule() is None
    assert scheduler.slots_used == 0


def test_when_all_end_one_that_has_just_ended_keeps_its_answer_and_nobody_runs() -> None:
    scheduler = make_scheduler()
    ending, going = make_sequence(max_tokens=1), make_sequence()
    for sequence in (ending, going):
        scheduler.add(sequence)
    while not ending.mailbox._outputs:
        advance(scheduler)
    scheduler.fail_all()

    assert not ending.is_aborted and going.is_aborted
    assert not scheduler.running and scheduler.schedule() is None


def test_what_has_ended_is_let_go_once_nothing_runs() -> None:
    scheduler = make_scheduler()
    sequences = [make_sequence(), make_sequence(beam_size=3), make_sequence(max_tokens=2)]
    for sequence in sequences:
        scheduler.add(sequence)
    for _ in range(4):
        advance(scheduler)
    sequences[0].prompt_tokens = [SampledToken(5)]
    for sequence in sequences:
        scheduler.abort(sequence)
    gone = [weakref.ref(sequence) for sequence in sequences]

    assert scheduler.schedule() is None and sequences[0].prompt_tokens == []
    del sequence, sequences
    assert [each() for each in gone] == [None] * 3


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_two_beams_agree_in_what_they_begin_with(first: list[int], second: list[int]) -> None:
    expected = len(os.path.commonprefix([first, second]))  # noqa: RUF071  # of lists

    assert _agreement(first, second) == expected
