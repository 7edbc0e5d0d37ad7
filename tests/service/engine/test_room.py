"""Who gets slots and memory beside whom, over many steps of a scheduler whose tokens are made up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from service.engine.admission import Admission, AdmissionLimits, Permit, three_quarters
from service.engine.beam_search import BeamParams
from service.engine.kv_cache import KVBudget
from service.engine.prefix_cache import PrefixCache
from service.engine.room import Room
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import Scheduler, SchedulerLimits
from service.engine.sequence import Sampling, Search, Sequence
from tests.service.engine.schedules import choices

END = 0


def request(client: str = "") -> Permit:
    return Admission(AdmissionLimits()).admit(client, 1, 1)


def narrow(permit: Permit, tokens: int = 8) -> Sequence:
    return Sequence([7, 8], Sampling(SamplingParams(tokens), [7, 8]), permit=permit)


def wide(permit: Permit, beam_size: int, tokens: int = 8) -> Sequence:
    return Sequence([7, 8], Search(BeamParams(tokens, beam_size), END), permit=permit)


def steps_until(scheduler: Scheduler, is_true: Callable[[], bool], refill: Callable[[], None] = lambda: None) -> int:
    """Run steps, adding more before each; returns how many it took."""
    for step in range(200):
        if is_true():
            return step
        refill()
        batch = scheduler.schedule()
        scheduler.check_integrity()
        if batch is not None:
            scheduler.update(batch, choices(batch))
    raise AssertionError("it never came true")


def keep_waiting(scheduler: Scheduler, make: Callable[[], Sequence], at_least: int = 4) -> Callable[[], None]:
    """Return what tops the queue up with a kind of sequence."""

    def refill() -> None:
        for _ in range(at_least - scheduler.waiting_sequences):
            scheduler.add(make())

    return refill


def held(scheduler: Scheduler) -> Counter[object]:
    slots: Counter[object] = Counter()
    for sequence in scheduler.running:
        slots[sequence.permit] += sequence.width
        slots[sequence.permit.client] += sequence.width
    return slots


def make_scheduler(slots: int, cache_tokens: int = 10**9) -> Scheduler:
    limits = SchedulerLimits(max_slots=slots, prefill_tokens=10_000)
    return Scheduler(limits, PrefixCache(0), KVBudget(cache_tokens))


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Sequence]:
    """The sequences for which room is looked for."""
    found: list[Sequence] = []
    fits_or_claims = Room.fits_or_claims

    def noted(self: Room, sequence: Sequence) -> bool:
        found.append(sequence)
        return fits_or_claims(self, sequence)

    monkeypatch.setattr(Room, "fits_or_claims", noted)
    return found


def test_a_narrow_one_finds_room_behind_any_number_of_wide_ones() -> None:
    scheduler = make_scheduler(slots=8)
    for _ in range(40):
        scheduler.add(wide(request(), beam_size=4))
    row = narrow(request())
    scheduler.add(row)

    assert steps_until(scheduler, lambda: row in scheduler.running) < 10


def test_a_flood_of_one_client_is_not_looked_through(looked_at: list[Sequence]) -> None:
    scheduler = make_scheduler(slots=8)
    scheduler.add(narrow(request("other")))
    for _ in range(1000):
        scheduler.add(narrow(request("flood"), tokens=100))
    scheduler.schedule()

    assert 6 <= len(looked_at) < 100


def test_a_search_of_64_beams_runs_among_streams_that_never_cease() -> None:
    scheduler = make_scheduler(slots=96)
    streams = keep_waiting(scheduler, lambda: narrow(request()), at_least=100)
    steps_until(scheduler, lambda: scheduler.slots_used == 96, streams)
    search = wide(request(), beam_size=64)
    scheduler.add(search)

    assert steps_until(scheduler, lambda: search in scheduler.running, streams) < 40
    assert sum(sequence.width == 1 for sequence in scheduler.running) > 0  # the streams went on meanwhile


def test_a_wide_search_runs_among_narrower_searches_and_streams_that_never_cease() -> None:
    scheduler = make_scheduler(slots=64)
    rng, widest = random.Random(0), wide(request(), 24)

    def refill() -> None:
        waiting = Counter(sequence.width for sequence in scheduler._waiting.in_turn())
        for _ in range(8 - waiting[1]):
            scheduler.add(narrow(request(), rng.randint(40, 80)))
        for _ in range(2 - waiting[9]):
            scheduler.add(wide(request(), 9, rng.randint(40, 80)))

    rounds = 0

    def enough() -> bool:
        nonlocal rounds
        rounds += 1
        return rounds > 100

    steps_until(scheduler, enough, refill)
    scheduler.add(widest)
    steps_until(scheduler, lambda: widest in scheduler.running, refill)


def test_streams_run_among_searches_that_never_cease() -> None:
    scheduler = make_scheduler(slots=96)
    searches = keep_waiting(scheduler, lambda: wide(request("hostile"), beam_size=64))
    steps_until(scheduler, lambda: scheduler.slots_used >= 64, searches)

    for _ in range(5):
        stream = narrow(request("polite"))
        scheduler.add(stream)
        assert steps_until(scheduler, lambda stream=stream: stream in scheduler.running, searches) <= 6  # type: ignore[misc]


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 8, 64])
def test_the_widest_search_fits_with_room_for_others(slots: int) -> None:
    assert 1 <= three_quarters(slots) <= max(1, slots - 1)


def test_one_request_leaves_room_for_the_next() -> None:
    scheduler = make_scheduler(slots=64)
    first = request()
    for _ in range(200):
        scheduler.add(narrow(first, tokens=100))
    steps_until(scheduler, lambda: len(scheduler.running) >= 48)
    for _ in range(4):
        scheduler.schedule()
    assert held(scheduler)[first] == 48

    scheduler.add(late := narrow(request()))
    steps_until(scheduler, lambda: late in scheduler.running)


def test_one_client_leaves_room_for_the_next_once_there_is_another() -> None:
    scheduler = make_scheduler(slots=64)
    flood = keep_waiting(scheduler, lambda: narrow(request("flood"), tokens=20), at_least=70)
    steps_until(scheduler, lambda: held(scheduler)["flood"] == 64, flood)  # alone it may have it all
    scheduler.add(first := narrow(request("other"), tokens=2))
    steps_until(scheduler, lambda: first in scheduler.running, flood)
    steps_until(scheduler, lambda: not first.slots and first not in scheduler.running, flood)
    steps_until(scheduler, lambda: held(scheduler)["flood"] <= 48, flood)

    scheduler.add(second := narrow(request("other")))
    assert steps_until(scheduler, lambda: second in scheduler.running, flood) <= 6  # there is always room


@pytest.mark.parametrize("beam_size", [8, 9])
def test_searches_of_one_client_leave_room_for_a_third_client_however_wide_they_are(beam_size: int) -> None:
    scheduler = make_scheduler(slots=64)
    for _ in range(19):
        scheduler.add(narrow(request("b"), tokens=500))
    steps_until(scheduler, lambda: scheduler.slots_used == 19)
    searches = keep_waiting(scheduler, lambda: wide(request("a"), beam_size=beam_size, tokens=500))
    steps_until(scheduler, lambda: scheduler.slots_used >= 19 + 3 * beam_size, searches)

    scheduler.add(late := narrow(request("c")))
    assert steps_until(scheduler, lambda: late in scheduler.running, searches) <= 6


def test_a_clients_first_wide_search_does_not_wait_for_its_own_streams_to_cease() -> None:
    scheduler = make_scheduler(slots=64)
    scheduler.add(narrow(request("b"), tokens=500))
    streams = keep_waiting(scheduler, lambda: narrow(request("a"), tokens=30))
    steps_until(scheduler, lambda: scheduler.slots_used >= 8, streams)

    scheduler.add(widest := wide(request("a"), beam_size=40))
    steps_until(scheduler, lambda: widest in scheduler.running, streams)


def test_sequences_are_admitted_by_the_memory_they_may_come_to_need() -> None:
    scheduler = make_scheduler(slots=64, cache_tokens=100)
    for _ in range(30):
        scheduler.add(narrow(request(), tokens=8))
    steps_until(scheduler, lambda: bool(scheduler.running))

    assert scheduler.cache_tokens_used == 100 and len(scheduler.running) == 10


def test_a_long_sequence_gets_its_memory_among_short_ones_that_never_cease() -> None:
    scheduler = make_scheduler(slots=64, cache_tokens=200)
    short = keep_waiting(scheduler, lambda: narrow(request(), tokens=8), at_least=30)
    steps_until(scheduler, lambda: scheduler.cache_tokens_used == 200, short)
    scheduler.add(long := narrow(request(), tokens=198))

    steps_until(scheduler, lambda: long in scheduler.running, short)


def test_one_client_leaves_memory_for_the_next() -> None:
    scheduler = make_scheduler(slots=64, cache_tokens=1600)
    other = narrow(request("other"), tokens=8)
    scheduler.add(other)
    steps_until(scheduler, lambda: not other.slots and other not in scheduler.running and bool(other.computed))
    long = keep_waiting(scheduler, lambda: narrow(request("flood"), tokens=98), at_least=40)
    steps_until(scheduler, lambda: scheduler.cache_tokens_used >= 1200, long)
    assert scheduler.cache_tokens_used <= 1200  # three quarters, in a fifth of the slots

    scheduler.add(late := narrow(request("other"), tokens=8))
    assert steps_until(scheduler, lambda: late in scheduler.running, long) <= 6


def test_a_search_may_take_three_quarters_of_the_memory_and_a_row_all_of_it() -> None:
    scheduler = make_scheduler(slots=64, cache_tokens=1000)

    assert scheduler.most_tokens(wide(request(), beam_size=4)) == 750
    assert scheduler.most_tokens(narrow(request())) == 1000


def test_behind_a_claim_a_queue_is_not_looked_through(looked_at: list[Sequence]) -> None:
    scheduler = make_scheduler(slots=16)
    for _ in range(15):
        scheduler.add(narrow(request(), tokens=100))
    scheduler.schedule()
    scheduler.add(wide(request(), beam_size=12))
    for _ in range(1000):
        scheduler.add(narrow(request()))
    looked_at.clear()
    assert list(scheduler._with_room(frozenset({""}))) == []
    assert len(looked_at) < 100
