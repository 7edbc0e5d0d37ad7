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
