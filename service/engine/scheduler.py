"""Who runs next: waiting sequences are admitted in order of arrival as slots and token budget allow.

A step is one of two kinds. Prefill brings new sequences' prompts (or sources) into the cache, all but the newest
token; decode feeds every row's newest token and chooses the next. They alternate while both have work, so running
sequences never wait for more than one prefill, which is never more than the token budget, or one source that is longer.
While many rows run, newcomers gather for a few decode steps: several prompts in one prefill take much less time than
each in its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

from service.engine.beam_search import Candidates
from service.engine.kv_cache import Copy
from service.engine.prefix_cache import BLOCK_TOKENS, Block, PrefixCache
from service.engine.sampling import SampledToken
from service.engine.sequence import Search, Sequence
from service.engine.slots import Slots

Choice = SampledToken | Candidates

ROWS_A_DECODE = 8  # so many rows' progress is worth letting newcomers wait for one step more


class Overloaded(Exception):
    """There is no room to wait in."""


@dataclass(frozen=True)
class SchedulerLimits:
    """Bounds of what runs, what waits, and what is kept of prompts."""

    max_slots: int = 64
    prefill_tokens: int = 512  # padded tokens of one prefill step
    max_decodes_between: int = 4  # decode steps for which newcomers are let gather while many rows run
    max_waiting_sequences: int = 256
    max_waiting_tokens: int = 65536
    prefix_cache_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True)
class Chunk:
    """A part of a sequence's prompt to compute, behind what is computed, and what else goes with it."""

    sequence: Sequence
    tokens: int
    restored: list[Block] = field(default_factory=list)  # put into the slot first: the prompt's known beginning
    stored: list[tuple[int, Block]] = field(default_factory=list)  # taken from the slot after: position, block
    sharers: list[Sequence] = field(default_factory=list)  # have the same prompt, and get a copy of its slot


@dataclass(frozen=True)
class Extent:
    """How much of the cache all running sequences take."""

    slots: int
    live: int  # slots that hold data before the step, and all below
    length: int  # tokens of the longest, those of this step included
    longest: int  # what any of them may come to hold
    source_length: int


@dataclass(frozen=True)
class Prefill:
    """Prompts or sources to compute."""

    chunks: list[Chunk]
    copies: list[Copy]
    extent: Extent


@dataclass(frozen=True)
class Decode:
    """One token for every row of the sequences, whose slots are 0 … n−1."""

    sequences: list[Sequence]
    copies: list[Copy]
    extent: Extent


Batch = Prefill | Decode


class Scheduler:
    """Owner of the queue, and of who runs."""

    def __init__(self, limits: SchedulerLimits, prefix_cache: PrefixCache) -> None:
        self.limits = limits
        self.prefix_cache = prefix_cache
        self._waiting: deque[Sequence] = deque()
        self._waiting_tokens = 0
        self._prefilling: list[Sequence] = []  # one slot each, and their width promised
        self._decoding: list[Sequence] = []
        self._restored: dict[Sequence, list[Block]] = {}  # of the newly admitted
        self._slots = Slots(limits.max_slots)
        self._decodes = 0  # steps since the last prefill

    @property
    def waiting_sequences(self) -> int:
        """How many sequences wait for admission."""
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        """How many tokens the waiting sequences will have to compute."""
        return self._waiting_tokens

    @property
    def running(self) -> list[Sequence]:
        """The admitted sequences."""
        return [*self._decoding, *self._prefilling]

    @property
    def slots_used(self) -> int:
        """How many slots the running sequences hold or are promised."""
        return sum(sequence.decoding.width for sequence in self.running)

    @property
    def is_full(self) -> bool:
        """Whether the queue would refuse any sequence."""
        limits = self.limits
        return len(self._waiting) >= limits.max_waiting_sequences or self._waiting_tokens >= limits.max_waiting_tokens

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; raises `Overloaded` when the queue is full."""
        limits = self.limits
        assert sequence.decoding.width <= limits.max_slots, "bug: wider than the cache; the task checks beam_size"
        tokens = self._waiting_tokens + sequence.waiting_tokens
        if self.is_full or (self._waiting and tokens > limits.max_waiting_tokens):
            raise Overloaded
        self._waiting.append(sequence)
        self._waiting_tokens = tokens

    def abort(self, sequence: Sequence) -> None:
        """End a sequence: at once if it waits, after the step in progress if it runs."""
        sequence.is_aborted = True
        if sequence in self._waiting:
            self._waiting.remove(sequence)
            self._waiting_tokens -= sequence.waiting_tokens

    def abort_running(self) -> list[Sequence]:
        """End every running sequence, as after a failed step that may have spoiled the cache; returns them."""
        ended = self.running
        for sequence in ended:
            sequence.is_aborted = True
        self._restored.clear()
        self.prefix_cache.clear()
        return ended

    def abort_all(self) -> list[Sequence]:
        """End every sequence, running and waiting; returns them."""
        ended = [*self.abort_running(), *self._waiting]
        for sequence in list(self._waiting):
            self.abort(sequence)
        return ended

    def schedule(self) -> Batch | None:
        """Return the next step, or None when there is nothing to do."""
        self._prefilling = [sequence for sequence in self._prefilling if not sequence.is_aborted]
        self._decoding = [sequence for sequence in self._decoding if sequence.slots and not sequence.is_aborted]
        self._decoding += [sequence for sequence in self._prefilling if sequence.is_prefilled]
        self._prefilling = [sequence for sequence in self._prefilling if not sequence.is_prefilled]
        copies = self._slots.lay_out(self._decoding)
        if not self._decoding or self._decodes >= self._decodes_due():
            if not self._prefilling:
                self._admit()
            if self._prefilling:
                self._decodes = 0
                chunks = self._chunks()
                return Prefill(chunks, copies, self._extent(copies, chunks))
        self._decodes += 1
        return Decode(list(self._decoding), copies, self._extent(copies)) if self._decoding else None

    def update(self, batch: Batch, choices: Several[Choice]) -> None:
        """Take a step's results: of a decode one choice for each sequence, of a prefill none."""
        if isinstance(batch, Prefill):
            for chunk in batch.chunks:
                for sequence in (chunk.sequence, *chunk.sharers):
                    sequence.computed += chunk.tokens
                    sequence.has_source = True
            return
        for sequence, choice in zip(batch.sequences, choices, strict=True):
            sequence.computed += 1
            if not sequence.is_aborted:
                beams = sequence.decoding.beams if isinstance(sequence.decoding, Search) else []
                self._slots.advance(sequence, sequence.advance(choice), beams)

    def check_integrity(self) -> None:
        """Assert what must hold once a step is scheduled: slots dense, each owned once, none leaked."""
        self._slots.check_integrity(self._decoding, self.running)
        assert self.slots_used <= self.limits.max_slots, "bug: more slots are promised than there are"
        tokens = sum(sequence.waiting_tokens for sequence in self._waiting)
        assert self._waiting_tokens == tokens, "bug: the waiting tokens are miscounted"

    def _decodes_due(self) -> int:
        """Return how many decode steps come before the next prefill; only one before a prompt's next chunk."""
        rows = sum(len(sequence.slots) for sequence in self._decoding)
        return 1 if self._prefilling else max(1, min(rows // ROWS_A_DECODE, self.limits.max_decodes_between))

    def _extent(self, copies: Several[Copy], chunks: Several[Chunk] = ()) -> Extent:
        running = self.running
        origins = [copy.origin for copy in copies]
        new = [chunk.sequence.computed + chunk.tokens for chunk in chunks]
        stored = [s.slots[-1] for s in self._prefilling if s.has_source] + [s for d in self._decoding for s in d.slots]
        return Extent(
            slots=1 + max([slot for sequence in running for slot in sequence.slots] + origins),
            live=1 + max(stored + origins, default=-1),
            length=max([sequence.computed + 1 for sequence in running] + new),
            longest=max(sequence.longest for sequence in running),
            source_length=max(len(sequence.source_ids or ()) for sequence in running),
        )

    def _admit(self) -> None:
        """Admit sequences that fit the free slots and, padded to the longest, the token budget; at least one.

        One with the prompt of another that is admitted with it shares the other's work, and costs none of the budget.
        """
        used = self.slots_used
        first_slot, longest = used, 0
        distinct: dict[object, list[Sequence]] = {}
        while self._waiting:
            sequence = self._waiting[0]
            key = _identity(sequence)
            longest = max(longest, len(sequence.source_ids or ()), len(sequence.prompt_ids))
            is_over_budget = key not in distinct and (len(distinct) + 1) * longest > self.limits.prefill_tokens
            used += sequence.decoding.width
            if used > self.limits.max_slots or (is_over_budget and distinct):
                break
            self._waiting.popleft()
            self._waiting_tokens -= sequence.waiting_tokens
            distinct.setdefault(key, []).append(sequence)
        # Those that are computed stand side by side, so that one run of the graph takes them all; the slots begin
        # behind all that the decoding rows may yet spread over.
        groups = sorted(distinct.values(), key=lambda group: group[0].waiting_tokens)  # alike ones side by side
        self._prefilling = [group[0] for group in groups] + [sharer for group in groups for sharer in group[1:]]
        for place, sequence in enumerate(self._prefilling):
            self._slots.assign(sequence, first_slot + place)
        for group in groups:
            self._restore(group)

    def _restore(self, group: list[Sequence]) -> None:
        """Begin behind what the prefix cache knows of a prompt."""
        first = group[0]
        if first.wants_prompt_logprobs or first.source_ids is not None:
            return
        blocks = self.prefix_cache.match(first.prefilled_ids)
        if blocks:
            self._restored[first] = blocks
            for sequence in group:
                sequence.computed = len(blocks) * BLOCK_TOKENS

    def _chunks(self) -> list[Chunk]:
        """Give every prompt its next chunk; a prompt longer than the budget is alone here, with its sharers."""
        leaders: dict[object, Chunk] = {}
        for sequence in self._prefilling:
            key = (_identity(sequence), sequence.computed)
            if key in leaders:
                leaders[key].sharers.append(sequence)
                continue
            tokens = self._chunk_tokens(sequence)
            stop = sequence.computed + tokens
            is_plain = sequence.source_ids is None
            stored = self.prefix_cache.add(sequence.prefilled_ids[:stop]) if is_plain else []
            leaders[key] = Chunk(sequence, tokens, self._restored.pop(sequence, []), stored)
        return list(leaders.values())

    def _chunk_tokens(self, sequence: Sequence) -> int:
        """Return how much of a prompt comes next. No single token is left for the last chunk (see `PrefixCache`)."""
        remaining = len(sequence.prefilled_ids) - sequence.computed
        budget = self.limits.prefill_tokens
        return budget - 1 if remaining == budget + 1 else min(remaining, budget)


def _identity(sequence: Sequence) -> object:
    """Return what sequences have in common that can share a prefill."""
    if sequence.wants_prompt_logprobs:
        return sequence
    return tuple(sequence.prompt_ids), tuple(sequence.source_ids or ())
