"""Who runs next: waiting sequences are admitted in order of arrival as slots and token budget allow.

A step is one of two kinds. Prefill brings new sequences' prompts (or sources) into the cache, all but the newest
token; decode feeds every row's newest token and chooses the next. They alternate while both have work, so running
sequences never wait for more than one prefill.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

from service.engine.beam_search import Candidates
from service.engine.sampling import SampledToken
from service.engine.sequence import Sequence

Choice = SampledToken | Candidates


class Overloaded(Exception):
    """There is no room to wait in."""


@dataclass(frozen=True)
class SchedulerLimits:
    """Bounds of what runs and what waits."""

    max_slots: int = 64
    prefill_tokens: int = 512  # padded tokens of one prefill step
    max_waiting_sequences: int = 256
    max_waiting_tokens: int = 65536


@dataclass(frozen=True)
class Copies:
    """Slots to copy onto others before a step; a source's keys and values only between sequences."""

    targets: list[int] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    with_source: list[bool] = field(default_factory=list)
    length: int = 0


@dataclass(frozen=True)
class Prefill:
    """Prompts or sources to compute: `tokens` of each sequence's prompt, behind those that are computed."""

    sequences: list[Sequence]
    tokens: list[int]
    copies: Copies


@dataclass(frozen=True)
class Decode:
    """One token for every row of the sequences, whose slots are 0 … n−1."""

    sequences: list[Sequence]
    copies: Copies


Batch = Prefill | Decode


class Scheduler:
    """Owner of the queue and of the slots.

    Between `update` and `schedule` a sequence's slots are where its rows' data lies; `schedule` lays them out anew,
    dense and without doubles, and the step it returns makes the copies first.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self._waiting: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []  # one slot each, and their width promised
        self._decoding: list[Sequence] = []
        self._owners: list[Sequence | None] = [None] * limits.max_slots  # whose source each slot holds
        self._was_prefill = False

    @property
    def waiting_sequences(self) -> int:
        """How many sequences wait for admission."""
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        """How many tokens the waiting sequences will have to compute."""
        return sum(sequence.waiting_tokens for sequence in self._waiting)

    @property
    def running(self) -> list[Sequence]:
        """The admitted sequences."""
        return [*self._decoding, *self._prefilling]

    @property
    def slots_used(self) -> int:
        """How many slots the running sequences hold or are promised."""
        return sum(sequence.decoding.width for sequence in self.running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; raises `Overloaded` when the queue is full."""
        limits = self.limits
        assert sequence.decoding.width <= limits.max_slots, "bug: wider than the cache; the task checks beam_size"
        is_full = len(self._waiting) >= limits.max_waiting_sequences
        tokens = self.waiting_tokens + sequence.waiting_tokens
        if is_full or (self._waiting and tokens > limits.max_waiting_tokens):
            raise Overloaded
        self._waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """End a sequence: at once if it waits, after the step in progress if it runs."""
        sequence.is_aborted = True
        if sequence in self._waiting:
            self._waiting.remove(sequence)

    def abort_all(self) -> list[Sequence]:
        """End every sequence, as after a failed step that may have spoiled the cache; returns them."""
        ended = [*self.running, *self._waiting]
        for sequence in ended:
            sequence.is_aborted = True
        self._waiting.clear()
        return ended

    def schedule(self) -> Batch | None:
        """Return the next step, or None when there is nothing to do."""
        self._prefilling = [sequence for sequence in self._prefilling if not sequence.is_aborted]
        self._decoding = [sequence for sequence in self._decoding if sequence.slots and not sequence.is_aborted]
        self._decoding += [sequence for sequence in self._prefilling if sequence.is_prefilled]
        self._prefilling = [sequence for sequence in self._prefilling if not sequence.is_prefilled]
        copies = self._lay_out()
        if not (self._was_prefill and self._decoding):
            self._was_prefill = True
            if not self._prefilling:
                self._admit()
            if self._prefilling:
                return self._prefill(copies)
        self._was_prefill = False
        return Decode(list(self._decoding), copies) if self._decoding else None

    def update(self, batch: Batch, choices: Several[Choice]) -> None:
        """Take a step's results; a decode brings one choice for each sequence."""
        if isinstance(batch, Prefill):
            for sequence, tokens in zip(batch.sequences, batch.tokens, strict=True):
                sequence.computed += tokens
                sequence.has_source = True
            return
        for sequence, choice in zip(batch.sequences, choices, strict=True):
            sequence.computed += 1
            if not sequence.is_aborted:
                rows = sequence.advance(choice)
                sequence.slots = [sequence.slots[row] for row in rows]

    def check_integrity(self) -> None:
        """Assert what must hold once a step is scheduled: slots dense, each owned once, none leaked."""
        slots = sorted(slot for sequence in self._decoding for slot in sequence.slots)
        assert slots == list(range(len(slots))), f"bug: decoding slots are not dense: {slots}"
        everyone = [slot for sequence in self.running for slot in sequence.slots]
        assert len(set(everyone)) == len(everyone), f"bug: a slot has two owners: {everyone}"
        assert self.slots_used <= self.limits.max_slots, "bug: more slots are promised than there are"
        for sequence in self.running:
            assert 1 <= len(sequence.slots) <= sequence.decoding.width, "bug: a sequence outgrew its promise"
            for slot in sequence.slots:
                assert self._owners[slot] is sequence, f"bug: slot {slot} holds another sequence's source"

    def _admit(self) -> None:
        """Admit sequences that fit the free slots and, padded to the longest, the token budget; at least one.

        Their slots begin behind all that decoding rows may yet spread over.
        """
        used = self.slots_used
        first_slot, longest = used, 0
        while self._waiting:
            sequence = self._waiting[0]
            longest = max(longest, len(sequence.source_ids or ()), len(sequence.prompt_ids))
            is_over_budget = (len(self._prefilling) + 1) * longest > self.limits.prefill_tokens
            used += sequence.decoding.width
            if used > self.limits.max_slots or (is_over_budget and self._prefilling):
                return
            self._waiting.popleft()
            sequence.slots = [first_slot + len(self._prefilling)]
            self._owners[sequence.slots[0]] = sequence
            self._prefilling.append(sequence)

    def _prefill(self, copies: Copies) -> Prefill:
        # A prompt longer than the budget is alone here (see _admit), and goes in chunks.
        unfinished = [len(sequence.prompt_ids) - 1 - sequence.computed for sequence in self._prefilling]
        budget = self.limits.prefill_tokens
        return Prefill(list(self._prefilling), [min(tokens, budget) for tokens in unfinished], copies)

    def _lay_out(self) -> Copies:
        """Give every decoding row its slot: rows stay where they are if they can, and fill the holes if they cannot.

        No copy's origin is another's target: a slot is free only if no row continues it.
        """
        rows = [(sequence, slot) for sequence in self._decoding for slot in sequence.slots]
        stays: list[bool] = []
        taken: set[int] = set()
        for _, slot in rows:
            stays.append(slot < len(rows) and slot not in taken)
            taken.add(slot)
        free = iter([slot for slot in range(len(rows)) if slot not in taken])
        copies = Copies(length=max((sequence.computed for sequence in self._decoding), default=0))
        for sequence in self._decoding:
            sequence.slots = []
        for (sequence, origin), is_in_place in zip(rows, stays, strict=True):
            target = origin if is_in_place else next(free)
            sequence.slots.append(target)
            if not is_in_place:
                copies.targets.append(target)
                copies.origins.append(origin)
                copies.with_source.append(self._owners[target] is not sequence)
                self._owners[target] = sequence
        return copies
