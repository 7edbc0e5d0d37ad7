from __future__ import annotations

import random

import numpy as np
import pytest

from service.engine.beam_search import BeamParams, Candidates
from service.engine.sampling import SampledToken, SamplingParams
from service.engine.scheduler import Batch, Decode, Overloaded, Prefill, Scheduler, SchedulerLimits
from service.engine.sequence import Sampling, Search, Sequence

END = 0


def make_scheduler(**limits: int) -> Scheduler:
    return Scheduler(SchedulerLimits(**{"max_slots": 8, "prefill_tokens": 16, **limits}))


def make_sequence(prompt: int = 4, max_tokens: int = 100, beam_size: int = 0, source: int = 0) -> Sequence:
    ids = [7] * prompt
    source_ids = [7] * source or None
    if beam_size:
        return Sequence(ids, Search(BeamParams(max_tokens, beam_size), END), source_ids)
    return Sequence(ids, Sampling(SamplingParams(max_tokens, stop_ids=frozenset({END})), ids), source_ids)


def advance(scheduler: Scheduler, rng: random.Random | None = None) -> Batch:
    """Schedule a step, check what must hold, and update with made-up tokens."""
    batch = scheduler.schedule()
    assert batch is not None
    scheduler.check_integrity()
    scheduler.update(batch, [made_up(s, rng) for s in batch.sequences] if isinstance(batch, Decode) else [])
    return batch


def made_up(sequence: Sequence, rng: random.Random | None) -> SampledToken | Candidates:
    if isinstance(sequence.decoding, Sampling):
        return SampledToken(5 if rng is None else rng.randint(0, 9))
    width = sequence.decoding.width
    tokens = range(1, 20) if rng is None else range(20)  # without the end, or with it
    ids = np.array([(rng or random.Random(1)).sample(tokens, 2 * width) for _ in sequence.slots])
    values = -np.sort(np.array([[(rng or random.Random(2)).random() * 3 for _ in row] for row in ids]))
    return Candidates(values, ids)


def test_a_late_request_joins_the_running_batch() -> None:
    scheduler = make_scheduler()
    early, late = make_sequence(prompt=3), make_sequence(prompt=5)

    scheduler.add(early)
    advance(scheduler)
    advance(scheduler)
    scheduler.add(late)

    assert advance(scheduler).sequences == [late]  # its prefill
    assert advance(scheduler).sequences == [early, late]  # then both decode together


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
    assert [batch.tokens for batch in batches if isinstance(batch, Prefill)] == [[16], [16], [7]]
    assert isinstance(batches[-1], Decode)


def test_a_prefill_keeps_to_its_padded_token_budget() -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    for prompt in (4, 5, 6, 7):
        scheduler.add(make_sequence(prompt))

    batch = advance(scheduler)
    assert len(batch.sequences) == 2  # a third would make 3 × 6 = 18


def test_first_come_first_served() -> None:
    scheduler = make_scheduler(max_slots=2)
    sequences = [make_sequence(prompt=2, max_tokens=2) for _ in range(6)]
    for sequence in sequences:
        scheduler.add(sequence)

    finished: list[Sequence] = []
    while (batch := scheduler.schedule()) is not None:
        scheduler.check_integrity()
        scheduler.update(batch, [SampledToken(5) for _ in batch.sequences])
        finished += [sequence for sequence in batch.sequences if not sequence.slots]
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
    assert (batch.copies.targets, batch.copies.origins) == ([1], [3])
    assert [sequence.slots for sequence in batch.sequences] == [[0], [2], [1]]


def test_a_search_is_promised_its_whole_width() -> None:
    scheduler = make_scheduler(max_slots=6)
    searches = [make_sequence(prompt=1, beam_size=4), make_sequence(prompt=1, beam_size=4)]
    for search in searches:
        scheduler.add(search)

    for _ in range(4):
        assert advance(scheduler).sequences == searches[:1]
    assert scheduler.slots_used == 4 and scheduler.waiting_sequences == 1


def test_beams_spread_from_one_row() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(prompt=3, beam_size=3))
    advance(scheduler)
    advance(scheduler)
    second = scheduler.schedule()

    assert isinstance(second, Decode)
    assert sorted(second.sequences[0].slots) == [0, 1, 2]
    assert set(second.copies.origins) == {0}
    assert second.copies.with_source == [True, True]  # new slots need the source too


def test_reordered_beams_keep_their_source() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(prompt=1, source=3, beam_size=3))
    batches = [advance(scheduler, random.Random(seed)) for seed in range(8)]

    later = [batch.copies for batch in batches[3:] if batch.copies.targets]
    assert later and not any(needed for copies in later for needed in copies.with_source)


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


def test_the_queue_is_bounded_in_sequences_and_in_tokens() -> None:
    few = make_scheduler(max_waiting_sequences=2)
    for _ in range(2):
        few.add(make_sequence())
    with pytest.raises(Overloaded):
        few.add(make_sequence())

    short = make_scheduler(max_waiting_tokens=10)
    short.add(make_sequence(prompt=6))
    with pytest.raises(Overloaded):
        short.add(make_sequence(prompt=6))
    short.add(make_sequence(prompt=4))


@pytest.mark.parametrize("seed", range(20))
def test_random_joins_leaves_and_aborts_never_leak(seed: int) -> None:
    rng = random.Random(seed)
    scheduler = make_scheduler(max_slots=rng.randint(4, 12), prefill_tokens=rng.choice([4, 16, 64]))
    alive: list[Sequence] = []
    for _ in range(300):
        if rng.random() < 0.3:
            sequence = make_sequence(
                rng.randint(1, 20), rng.randint(1, 12), rng.choice([0, 0, 2, 3, 4]), rng.choice([0, 6])
            )
            scheduler.add(sequence)
            alive.append(sequence)
        if alive and rng.random() < 0.1:
            scheduler.abort(alive.pop(rng.randrange(len(alive))))
        batch = scheduler.schedule()
        scheduler.check_integrity()
        if batch is None:
            continue
        assert not set(batch.copies.targets) & set(batch.copies.origins)
        if isinstance(batch, Prefill) and len(batch.sequences) > 1:
            longest = max(max(len(s.source_ids or ()), len(s.prompt_ids)) for s in batch.sequences)
            assert longest * len(batch.sequences) <= scheduler.limits.prefill_tokens
        if alive and rng.random() < 0.1:
            scheduler.abort(rng.choice(alive))
        scheduler.update(batch, [made_up(s, rng) for s in batch.sequences] if isinstance(batch, Decode) else [])
    scheduler.abort_all()

    assert scheduler.schedule() is None
    assert scheduler.slots_used == 0
