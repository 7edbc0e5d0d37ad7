"""Whose steps come when several clients share a scheduler, and who rests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set

import pytest

from service.engine.batch import Decode, Prefill
from service.engine.scheduler import ROWS_IN_TURN, Scheduler
from service.engine.sequence import Sequence
from tests.service.engine.schedules import advance, choices, make_scheduler, make_sequence, of_client, sequences_of


def test_prefills_of_one_client_leave_others_time_to_decode() -> None:
    scheduler = make_scheduler(prefill_tokens=16)
    stream, flood = of_client("stream", make_sequence(prompt=2)), of_client("flood", make_sequence(prompt=100))
    scheduler.add(stream)
    advance(scheduler)
    advance(scheduler)
    scheduler.add(flood)

    kinds = ""
    for _ in range(36):
        batch = scheduler.schedule()
        assert batch is not None
        kinds += "P" if isinstance(batch, Prefill) else "d"
        scheduler.update(batch, choices(batch), seconds=0.3 if isinstance(batch, Prefill) else 0.1)
    assert re.fullmatch("d*(Pd{6,10})+", kinds), kinds


def test_a_client_of_many_rows_rests_while_another_decodes_its_few() -> None:
    scheduler = make_scheduler(prefill_tokens=64)
    flood = [of_client("flood", make_sequence(max_tokens=1000)) for _ in range(6)]
    stream = of_client("stream", make_sequence(max_tokens=1000))
    for sequence in [*flood, stream]:
        scheduler.add(sequence)

    seconds, steps = dict.fromkeys(("flood", "stream"), 0.0), Counter[Sequence]()
    for _ in range(400):
        batch = scheduler.schedule()
        scheduler.check_integrity()
        assert batch is not None
        decoded = sequences_of(batch)
        steps.update(decoded)
        seconds["flood" if flood[0] in decoded else "stream"] += 0.02 * len(decoded)
        scheduler.update(batch, choices(batch), seconds=0.02 * len(decoded))

    assert seconds["stream"] > seconds["flood"] > seconds["stream"] / 4
    assert 4 * steps[flood[0]] < steps[stream]


def test_steps_may_wait_that_are_only_for_one_who_is_ahead_of_another() -> None:
    scheduler = make_scheduler()
    flood = of_client("flood", make_sequence(max_tokens=1000))
    scheduler.add(flood)
    assert not scheduler.may_wait(advance(scheduler))

    short = of_client("other", make_sequence(max_tokens=1))
    scheduler.add(short)
    waited = {"flood": [False], "other": [False]}
    for _ in range(20):
        batch = scheduler.schedule()
        assert batch is not None
        waited["other" if short in sequences_of(batch) else "flood"].append(scheduler.may_wait(batch))
        scheduler.update(batch, choices(batch), seconds=0.1)

    assert waited["flood"][-1] and not any(waited["other"])


def test_one_who_waits_for_room_does_not_stop_those_who_have_it() -> None:
    scheduler = make_scheduler(max_slots=4)
    wide = of_client("wide", make_sequence(beam_size=3))
    scheduler.add(wide)
    advance(scheduler)
    scheduler.add(of_client("other", make_sequence(beam_size=3)))

    for _ in range(20):
        batch = scheduler.schedule()
        assert isinstance(batch, Decode) and batch.sequences == [wide]
        scheduler.update(batch, choices(batch), seconds=1.0)


def test_nobody_stands_still_once_one_who_waited_for_room_has_it() -> None:
    scheduler = make_scheduler()
    flood = [of_client("flood", make_sequence(max_tokens=400 + 100 * number)) for number in range(8)]
    late = of_client("late", make_sequence(max_tokens=1500))
    for sequence in flood:
        scheduler.add(sequence)
    now, went_on_at, pauses = 0.0, 0.0, []

    for step in range(1000):
        if step == 50:
            scheduler.add(late)
        batch = scheduler.schedule()
        assert batch is not None
        seconds = 0.02 + 0.002 * len(batch.sequences)
        scheduler.update(batch, choices(batch), seconds=seconds)
        now += seconds
        if any(sequence in flood for sequence in sequences_of(batch)):
            pauses.append(now - went_on_at)
            went_on_at = now
    assert late.slots and max(*pauses, now - went_on_at) < 0.5


def test_that_there_is_room_for_nobody_is_remembered_of_all_who_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(max_slots=4)
    for client in ("a", "b"):
        scheduler.add(of_client(client, make_sequence(beam_size=3, max_tokens=50)))
    advance(scheduler)
    advance(scheduler)
    scheduler.add(of_client("c", make_sequence(max_tokens=1)))
    admitted: list[set[str]] = []
    admit = scheduler._admit

    def noted(clients: Set[str]) -> bool:
        admitted.append(set(clients))
        return admit(clients)

    monkeypatch.setattr(scheduler, "_admit", noted)

    for clients in [{"b"}, {"a", "b"}] * 5:
        scheduler._admit_if_possible(clients)
    assert admitted == [{"b"}, {"a", "b"}]
    scheduler._admit_if_possible({"c"})  # the only free slot
    scheduler._stuck_at = scheduler._changes, len(scheduler.running)  # as many as when there was no room, others
    scheduler._admit_if_possible({"b"})
    assert admitted[2:] == [{"c"}, {"b"}]


def test_a_client_pays_once_for_a_prompt_that_its_sequences_share() -> None:
    scheduler = make_scheduler(prefill_tokens=32)
    for client in ("one", "other", "other"):
        scheduler.add(of_client(client, make_sequence(prompt=9)))
    batch = scheduler.schedule()
    assert isinstance(batch, Prefill) and len(batch.chunks) == 2

    assert batch.work() == {"one": 8, "other": 8}


def many_beside_one(row_s: float = 0.001) -> tuple[Scheduler, list[Sequence]]:
    """Return a scheduler with 40 sequences of a client, beside which another has had one; and the 40."""
    scheduler = make_scheduler(max_slots=64, prefill_tokens=512)
    many = [of_client("many", make_sequence()) for _ in range(40)]
    one = of_client("one", make_sequence(max_tokens=3))
    for sequence in (one, *many):
        scheduler.add(sequence)
    advance(scheduler, row_s=row_s)
    while one.slots:
        advance(scheduler, row_s=row_s)
    return scheduler, many


def test_rows_whose_steps_are_long_have_turns_while_another_client_may_come_back() -> None:
    scheduler, many = many_beside_one()
    before = [sequence.computed for sequence in many]
    batches = [advance(scheduler, row_s=0.001) for _ in range(30)]

    assert {len(batch.sequences) for batch in batches} == {ROWS_IN_TURN}
    steps = [sequence.computed - begun for sequence, begun in zip(many, before, strict=True)]
    assert max(steps) - min(steps) <= 1 and sum(steps) == 30 * ROWS_IN_TURN


def test_rows_whose_steps_are_short_decode_together_though_another_client_may_come_back() -> None:
    scheduler, many = many_beside_one(row_s=0.0002)
    batches = [advance(scheduler, row_s=0.0002) for _ in range(30)]

    assert {len(batch.sequences) for batch in batches} == {len(many)}


def test_a_search_that_is_wider_than_a_turn_has_one_of_its_own() -> None:
    scheduler, _ = many_beside_one()
    search = of_client("many", make_sequence(beam_size=20))
    scheduler.add(search)
    batches = [advance(scheduler, row_s=0.001) for _ in range(40)]
    wide = [batch for batch in batches if isinstance(batch, Decode) and search in batch.sequences]

    assert len(wide) > 8
    assert all(len(batch.sequences) == 1 for batch in wide[1:])  # the first is of a single row


def test_the_first_of_another_client_waits_for_a_single_step() -> None:
    scheduler, _ = many_beside_one()
    scheduler.add(of_client("many", make_sequence()))
    while not isinstance(advance(scheduler, row_s=0.001), Prefill):  # behind which newcomers gather for some steps
        pass
    newcomer = of_client("one", make_sequence())
    scheduler.add(newcomer)
    batches = [advance(scheduler, row_s=0.001) for _ in range(2)]

    assert any(newcomer in batch.sequences for batch in batches)


def test_the_first_of_another_client_passes_prompts_of_one_that_had_more_time() -> None:
    scheduler, _ = many_beside_one()
    for _ in range(3):
        scheduler.add(of_client("many", make_sequence(prompt=500)))
    newcomer = of_client("one", make_sequence())
    scheduler.add(newcomer)
    prefills = [batch for _ in range(4) if isinstance(batch := advance(scheduler, row_s=0.001), Prefill)]

    assert newcomer in prefills[0].sequences


def test_a_prompt_of_one_that_had_more_time_is_not_passed_for_ever() -> None:
    scheduler, _ = many_beside_one()
    long = of_client("many", make_sequence(prompt=500))
    scheduler.add(long)
    prefills = 0
    while not long.is_prefilled:
        for _ in range(4):  # so that there is always one that waits
            scheduler.add(of_client("one", make_sequence(prompt=200, max_tokens=1)))
        prefills += isinstance(advance(scheduler, row_s=0.001), Prefill)

    assert prefills < 20
