"""Who runs next: waiting sequences are admitted in turn as slots, the cache's memory and the token budget allow.

A step is one of two kinds. Prefill brings new sequences' prompts (or sources) into the cache, all but the newest
token; decode feeds every row's newest token and chooses the next. They alternate while both have work, so running
sequences never wait for more than one prefill, which is never more than the token budget, or one source that is longer.
While many rows run, newcomers gather for a few decode steps: several prompts in one prefill take much less time than
each in its own. A prompt of several prefills gives every other one to shorter ones, newcomers among them.

The `WaitingQueue` decides whose turn it is, the `Room` who fits, the `Shares` whose rows pause for a while, and the
`Chunking` how much of each prompt comes next.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, abc
from collections.abc import Iterator, Set
from dataclasses import dataclass

from service.engine.admission import three_quarters
from service.engine.batch import Batch, Decode, Extent, Prefill, StepChoice
from service.engine.beam_search import Candidates
from service.engine.chunking import Chunking, remaining, shortest_of_clients
from service.engine.drafting import MAX_DRAFT_ROWS, Costs
from service.engine.isolation import ENDINGS, Failure
from service.engine.kv_cache import Copy, KVBudget
from service.engine.logprobs import SampledToken
from service.engine.prefix_cache import PrefixCache
from service.engine.room import Room, tokens_of
from service.engine.sequence import Sampling, Search, Sequence
from service.engine.shares import Shares
from service.engine.slots import Slots, slots_of
from service.engine.waiting import WaitingQueue

logger = logging.getLogger(__name__)

ROWS_PER_DECODE = 8  # so many rows' progress is worth letting newcomers wait for one step more
ROWS_IN_TURN = 16  # at least, where a client has turns: weights are read for each step, however few rows it has
REFUSED_PER_SLOT = 4  # sequences that are looked at though there is no room for them


@dataclass(frozen=True)
class SchedulerLimits:
    """Bounds of what runs, and of what is kept of prompts."""

    max_slots: int = 64
    prefill_tokens: int = 512  # padded tokens of one prefill step
    max_decodes_between: int = 4  # decode steps for which newcomers are let gather while many rows run
    prefix_cache_bytes: int = 64 * 1024 * 1024
    kv_cache_bytes: int | None = None  # none: all slots at their greatest length
    has_drafts: bool = True  # several tokens of a sequence in a step, where the graph can (`drafting.py`)

    @property
    def max_width(self) -> int:
        """Slots of the widest search."""
        return three_quarters(self.max_slots)


class Scheduler:
    """Owner of the queue, and of who runs."""

    def __init__(
        self, limits: SchedulerLimits, prefix_cache: PrefixCache, budget: KVBudget, *, takes_drafts: bool = False
    ) -> None:
        """`takes_drafts`: whether the graph can compute them."""
        self.limits, self.budget = limits, budget
        self._has_drafts, self._costs = limits.has_drafts and takes_drafts, Costs()
        self.prefix_cache = prefix_cache
        self._waiting: WaitingQueue[Sequence] = WaitingQueue()
        self._clients: set[str] = set()  # that were ever here
        self._shares = Shares()
        self._changes = 0  # arrivals and departures
        self._stuck_at = 0, 0  # what there was when last there was room for nobody
        self._stuck: set[frozenset[str]] = set()  # of some clients, for which there was none
        self._prefilling: list[Sequence] = []  # one slot each, and their width promised
        self._decoding: list[Sequence] = []
        self._chunking = Chunking(limits.prefill_tokens, prefix_cache)
        self._slots = Slots(limits.max_slots)
        self._decodes = 0  # steps since the last prefill
        self._turns = 0  # that sequences have had
        self._gives_way = False  # whether the next prefill is for the shortest prompts, not for the oldest

    @property
    def waiting_sequences(self) -> int:
        """How many sequences wait for admission."""
        return len(self._waiting)

    @property
    def running(self) -> list[Sequence]:
        """The admitted sequences."""
        return [*self._decoding, *self._prefilling]

    @property
    def slots_used(self) -> int:
        """How many slots the running sequences hold or are promised."""
        return sum(sequence.decoding.width for sequence in self.running)

    @property
    def cache_tokens_used(self) -> int:
        """How many tokens of the cache the running sequences hold or are promised."""
        return sum(tokens_of(sequence, self.budget) for sequence in self.running)

    def most_tokens(self, sequence: Sequence) -> int:
        """Return how many tokens of the cache a sequence may come to take: all for one row, not so for a search."""
        return self.budget.tokens if sequence.width == 1 else three_quarters(self.budget.tokens)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; its request has been admitted."""
        assert sequence.width <= self.limits.max_slots, "bug: wider than the cache; the task checks beam_size"
        self._clients.add(sequence.permit.client)
        self._waiting.add(sequence)
        self._changes += 1

    def abort(self, sequence: Sequence) -> None:
        """End a sequence: at once if it waits, after the step in progress if it runs."""
        sequence.is_aborted = True
        self._waiting.remove(sequence)
        self._changes += 1

    def fail_all(self) -> None:
        """End every sequence, running and waiting, and tell the readers; one that has just ended keeps its answer."""
        running = [sequence for sequence in self.running if sequence.slots]
        for sequence in [*running, *self._waiting.in_turn()]:
            if not sequence.is_aborted:
                sequence.fail()
            self._waiting.remove(sequence)
        self._prefilling, self._decoding = [], []
        self._chunking.clear()
        self.prefix_cache.clear()

    def schedule(self) -> Batch | None:
        """Return the next step, or None when there is nothing to do."""
        batch = self._schedule()
        if batch is None and not self.running:
            self._slots.clear()
        return batch

    def _schedule(self) -> Batch | None:
        for sequence in self.running:
            if sequence.is_aborted:  # which its slot may keep until another takes it
                sequence.prompt_tokens = []
        self._prefilling = [sequence for sequence in self._prefilling if not sequence.is_aborted]
        self._decoding = [sequence for sequence in self._decoding if sequence.slots and not sequence.is_aborted]
        self._decoding += [sequence for sequence in self._prefilling if sequence.is_prefilled]
        self._prefilling = [sequence for sequence in self._prefilling if not sequence.is_prefilled]
        self._chunking.forget_aborted()
        copies = self._slots.lay_out(self._decoding, slots_of(self._prefilling))
        if len(self._clients) < 2:
            return self._next(self._clients, copies)
        running = _clients_of(self.running)
        present = running | self._waiting.clients
        # Clients that only wait are left out: nobody can rest in their favour until they have room.
        may_run = self._shares.may_run(running) | (present - running)
        # Those who may run may all be waiting for room, which only the others' end will give.
        return self._next(may_run, copies) or (self._next(present, copies) if may_run != present else None)

    def _next(self, clients: Set[str], copies: list[Copy]) -> Batch | None:
        """Return the next step of some clients, while the others rest."""
        decoding = self._of(clients, self._decoding)
        if not decoding or self._decodes >= self._decodes_due(clients, decoding):
            if self._gives_way or not self._of(clients, self._prefilling):
                self._admit_if_possible(clients)
            if prefilling := self._of(clients, self._prefilling):
                self._decodes = 0
                chunks = self._chunking.of(sorted(prefilling, key=remaining) if self._gives_way else prefilling)
                self._gives_way = not self._gives_way and any(remaining(each.sequence) > each.tokens for each in chunks)
                lengths = [chunk.sequence.computed + chunk.tokens for chunk in chunks]
                return Prefill(chunks, copies, self._extent(copies, lengths))
        if not decoding:
            return None
        decoding = self._in_turn(decoding)
        self._decodes += 1
        drafts = self._drafts(decoding) if self._has_drafts else {}
        lengths = [sequence.computed + 1 + len(draft) for sequence, draft in drafts.items()]
        return Decode(decoding, copies, self._extent(copies, lengths), drafts)

    def _in_turn(self, decoding: list[Sequence]) -> list[Sequence]:
        """Return those that decode now: of a client whose steps take long only some, the longest waiting ones."""
        if len(self._clients) < 2 or len(slots_of(decoding)) <= ROWS_IN_TURN:
            return decoding
        turns = self._shares.turns()
        if not turns:
            return decoding
        rows: Counter[str] = Counter()  # of each client in this step
        chosen: set[Sequence] = set()
        for sequence in sorted(decoding, key=lambda each: each.turn):
            client, width = sequence.permit.client, len(sequence.slots)
            if rows[client] and rows[client] + width > max(ROWS_IN_TURN, turns.get(client, math.inf)):
                continue
            rows[client] += width
            self._turns += 1
            sequence.turn = self._turns
            chosen.add(sequence)
        return [sequence for sequence in decoding if sequence in chosen]

    def may_wait(self, batch: Batch) -> bool:
        """Whether a step is only for clients who have had more time than others who were here lately."""
        if len(self._clients) < 2:
            return False
        return self._shares.are_ahead(_clients_of(batch.sequences))

    def update(self, batch: Batch, results: abc.Sequence[StepChoice | Failure | None], seconds: float = 0.0) -> None:
        """Take a step's results: of a decode a choice for each sequence, of a prefill None for each chunk.

        A sequence with a failure instead ends, and those that share its chunk. `seconds` is how long the step took.
        """
        if len(self._clients) > 1:
            self._shares.charge(batch.work(), seconds, batch.kind)
        if isinstance(batch, Prefill):
            self._update_prefilled(batch, results)
            return
        if self._has_drafts and (rows := _rows_if_few(batch.sequences)):
            drafted = [s for s, choice in zip(batch.sequences, results, strict=True) if isinstance(choice, list)]
            self._costs.took(rows, sum(len(batch.drafts[sequence]) for sequence in drafted), seconds)
        for sequence, choice in zip(batch.sequences, results, strict=True):
            assert choice is not None, "bug: a decoding sequence without a choice"
            for each in choice if isinstance(choice, list) else [choice]:
                sequence.computed += 1
                sequence.permit.spending.tokens += 1  # of a search one beam's, as its answer will say
                if isinstance(each, Failure):
                    sequence.fail()
                elif not sequence.is_aborted:
                    self._advance(sequence, each)

    def _advance(self, sequence: Sequence, choice: SampledToken | Candidates) -> None:
        """Let a sequence take its choice; of a search its grammar is asked only now, and may fail as all else may."""
        beams = sequence.decoding.beams if isinstance(sequence.decoding, Search) else []  # as they are before
        try:
            rows = sequence.advance(choice)
        except ENDINGS:
            raise
        except BaseException:
            logger.exception("a sequence failed on what was chosen for it; it ends, and the others go on")
            sequence.fail()
            return
        self._slots.advance(sequence, rows, beams)

    def _update_prefilled(self, batch: Prefill, results: abc.Sequence[StepChoice | Failure | None]) -> None:
        for chunk, result in zip(batch.chunks, results, strict=True):
            source = 0 if chunk.sequence.has_source else len(chunk.sequence.source_ids or ())
            for permit in {sequence.permit for sequence in (chunk.sequence, *chunk.sharers)}:
                permit.spending.tokens += chunk.tokens + source
            for sequence in (chunk.sequence, *chunk.sharers):
                if isinstance(result, Failure):
                    sequence.fail()
                sequence.computed += chunk.tokens
                sequence.has_source = True
        if any(isinstance(result, Failure) for result in results):
            self.prefix_cache.clear()  # its blocks may not have been filled

    def check_integrity(self) -> None:
        """Assert what must hold once a step is scheduled: slots dense, each owned once, none leaked."""
        self._slots.check_integrity(self._decoding, self.running)
        assert self.slots_used <= self.limits.max_slots, "bug: more slots are promised than there are"
        assert self.cache_tokens_used <= self.budget.tokens, "bug: more memory is promised than there is"

    def _decodes_due(self, clients: Set[str], decoding: abc.Sequence[Sequence]) -> int:
        """Return how many decode steps come before the next prefill.

        Only one before a prompt's next chunk, and before the first prompt of a client of whom nothing runs.
        """
        if self._of(clients, self._prefilling):
            return 1
        if len(self._clients) > 1 and self._waiting.clients - _clients_of(self.running):
            return 1
        rows = len(slots_of(decoding))
        return max(1, min(rows // ROWS_PER_DECODE, self.limits.max_decodes_between))

    def _drafts(self, decoding: list[Sequence]) -> dict[Sequence, list[int]]:
        """Return what sequences may go on with, where that pays; nothing while others are between their slots."""
        rows = _rows_if_few(decoding)
        if not rows or not self._costs.may_pay(rows) or max(slots_of(decoding)) >= rows:
            return {}
        least = self._costs.least_chance(rows)
        drafts = {s: s.decoding.draft(least) for s in decoding if isinstance(s.decoding, Sampling)}
        return {sequence: draft for sequence, draft in drafts.items() if draft}

    def _extent(self, copies: abc.Sequence[Copy], lengths: list[int]) -> Extent:
        """Return how much of the cache is taken; by some sequences up to these lengths, by all others a token more."""
        running = self.running
        stored = [copy.origin for copy in copies] + slots_of(self._decoding)
        stored += [sequence.slots[-1] for sequence in self._prefilling if sequence.has_source]
        return Extent(
            slots=1 + max(stored + slots_of(self._prefilling)),
            live=1 + max(stored, default=-1),
            length=max([sequence.computed + 1 for sequence in running] + lengths),
            source_length=max([len(sequence.source_ids) for sequence in running if sequence.source_ids], default=0),
        )

    def _of(self, clients: Set[str], sequences: abc.Sequence[Sequence]) -> list[Sequence]:
        if len(self._clients) < 2:  # as mostly
            return list(sequences)
        return [sequence for sequence in sequences if sequence.permit.client in clients]

    def _admit_if_possible(self, clients: Set[str]) -> None:
        """Admit newcomers, unless nothing has changed since there was room for nobody."""
        state, who = (self._changes, len(self.running)), frozenset(clients)
        if self._stuck_at != state:
            self._stuck_at, self._stuck = state, set()
        if who in self._stuck:
            return
        if self._admit(clients):
            self._stuck.clear()  # and as many may run again another time, when others have ended
        elif not self._gives_way:  # else there may have been room for those that were passed over
            self._stuck.add(who)

    def _admit(self, clients: Set[str]) -> bool:
        """Admit sequences that fit the free slots and, padded to the longest, the token budget; at least one.

        One with the prompt of another that is admitted with it shares the other's work, and costs none of the budget.
        """
        longest = 0
        distinct: dict[object, list[Sequence]] = {}
        for sequence in self._with_room(clients):
            key = sequence.identity
            longest = max(longest, len(sequence.source_ids or ()), len(sequence.prompt_ids))
            is_over_budget = key not in distinct and (len(distinct) + 1) * longest > self.limits.prefill_tokens
            if is_over_budget and distinct:
                break
            distinct.setdefault(key, []).append(sequence)
        for sequence in [sequence for group in distinct.values() for sequence in group]:
            self._waiting.take(sequence)
            sequence.permit.begin(sequence.width, sequence.waiting_tokens)
        # Those that are computed stand side by side, so that one run of the graph takes them all; the slots are behind
        # all that the decoding rows may yet spread over.
        spread = sum(sequence.decoding.width for sequence in self._decoding)
        slots = self._slots.free_of(slots_of(self._prefilling))[spread:]
        groups = sorted(distinct.values(), key=lambda group: group[0].input_tokens)  # alike ones side by side
        admitted = [group[0] for group in groups] + [sharer for group in groups for sharer in group[1:]]
        for slot, sequence in zip(slots, admitted, strict=False):
            self._slots.assign(sequence, slot)
        self._prefilling += admitted
        for group in groups:
            self._chunking.restore(group)
        return bool(admitted)

    def _with_room(self, clients: Set[str]) -> Iterator[Sequence]:
        """Yield waiting sequences that there is room for, in turn; whoever asks for the next takes the last."""
        room = Room(self.limits.max_slots, self.budget, self.running, shares_clients=len(self._clients) > 1)
        # Each client's and each request's first comes first, and they are few: of the flood behind them no more is
        # looked at, or it would take milliseconds a step.
        most_refused, passed_over = REFUSED_PER_SLOT * self.limits.max_slots, 0
        # Where one of a client's long prompts gives way to shorter ones, another as long of the same would take that.
        shortest = shortest_of_clients(self._prefilling) if self._gives_way else {}
        last = self._shares.ahead_among(self._waiting.clients & clients) if len(self._clients) > 1 else frozenset()
        for sequence in self._waiting.in_turn(clients, last):
            if room.is_used_up or room.refused + passed_over > most_refused:
                return
            if self._chunking.is_as_long(sequence, shortest.get(sequence.permit.client)):
                passed_over += 1
                continue
            if room.fits_or_claims(sequence):
                yield sequence
                room.take(sequence)


def _clients_of(sequences: abc.Sequence[Sequence]) -> set[str]:
    return {sequence.permit.client for sequence in sequences}


def _rows_if_few(sequences: abc.Sequence[Sequence]) -> int:
    """Return how many rows there are, or 0 if they are too many for drafts."""
    if len(sequences) > MAX_DRAFT_ROWS:  # as all have one at least
        return 0
    rows = len(slots_of(sequences))
    return rows if rows <= MAX_DRAFT_ROWS else 0
