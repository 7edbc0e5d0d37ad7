"""Where every running row's data lies, and which copies bring it where the next step wants it."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field

from service.engine.kv_cache import Copy
from service.engine.sequence import Sequence


@dataclass
class _Content:
    """What a slot holds: whose source, how many tokens, and, of a search, which output ids behind the prompt."""

    owner: Sequence | None = None
    tokens: int = 0  # at least; a first prefill is not counted
    output_ids: list[int] = field(default_factory=list)  # never changed, only replaced


class Slots:
    """Owner of the slots' contents.

    Between a step's results and the next layout a sequence's slots are where its rows' data lies; the layout puts the
    rows of all decoding sequences into the first slots that no half computed prompt holds: mostly 0 … n−1.
    """

    def __init__(self, count: int) -> None:
        self._contents = [_Content() for _ in range(count)]
        self._dense = 0  # rows of the last layout; what lies beyond may have been overwritten

    def assign(self, sequence: Sequence, slot: int) -> None:
        """Give a new sequence its first slot."""
        sequence.slots = [slot]
        self._contents[slot] = _Content(sequence)

    def advance(self, sequence: Sequence, rows: abc.Sequence[int], beams: abc.Sequence[list[int]]) -> None:
        """Keep the slots of the rows that go on; `beams` are a search's rows as the step found and computed them."""
        for slot in sequence.slots:
            self._contents[slot].tokens = sequence.computed
        for slot, output_ids in zip(sequence.slots, beams, strict=False):
            self._contents[slot].output_ids = output_ids
        sequence.slots = [sequence.slots[row] for row in rows]

    def lay_out(self, sequences: abc.Sequence[Sequence], held: abc.Collection[int] = ()) -> list[Copy]:
        """Give every row its slot: rows stay where they are if they can, and fill the holes if they cannot.

        No copy's origin is another's target: a slot is free only if no row continues it. `held` are others', which may
        have thousands of tokens to copy, and stay.
        """
        slots = slots_of(sequences)
        targets = self.free_of(held)[: len(slots)] if held else list(range(len(slots)))
        dense, self._dense = self._dense, 1 + max(targets, default=-1)
        if sorted(slots) == targets:  # as at most steps
            return []
        wanted = set(targets)
        rows = [(sequence, slot) for sequence in sequences for slot in sequence.slots]
        taken: set[int] = set()
        stays: list[bool] = []
        for _, slot in rows:
            stays.append(slot in wanted and slot not in taken)
            taken.add(slot)
        free = [slot for slot in targets if slot not in taken]
        for sequence in sequences:
            sequence.slots = []
        copies: list[Copy] = []
        for (sequence, origin), is_in_place in zip(rows, stays, strict=True):
            if is_in_place:
                sequence.slots.append(origin)
                continue
            target = self._nearest(free, sequence)
            copies.append(self._copy(sequence, origin, target, is_kept=target < dense))
            sequence.slots.append(target)
        return copies

    def free_of(self, held: abc.Collection[int]) -> list[int]:
        """Return all slots but some, in order."""
        return [slot for slot in range(len(self._contents)) if slot not in held]

    def clear(self) -> None:
        """Let go of the sequences whose data lies in slots that nobody holds any more."""
        self._contents = [_Content() for _ in self._contents]

    def check_integrity(self, decoding: abc.Sequence[Sequence], running: abc.Sequence[Sequence]) -> None:
        """Assert what must hold once a step is scheduled: slots dense, each owned once, holding what they should."""
        slots = {slot for sequence in decoding for slot in sequence.slots}
        assert not slots or max(slots) < self._dense, f"bug: decoding slots are not dense: {slots}"
        everyone = [slot for sequence in running for slot in sequence.slots]
        assert len(set(everyone)) == len(everyone), f"bug: a slot has two owners: {everyone}"
        for sequence in running:
            assert 1 <= len(sequence.slots) <= sequence.decoding.width, "bug: a sequence outgrew its promise"
            for slot in sequence.slots:
                assert self._contents[slot].owner is sequence, f"bug: slot {slot} holds another sequence's data"

    def _nearest(self, free: list[int], sequence: Sequence) -> int:
        """Take a free slot, one that holds a beam of the same search if there is one: there is less to copy."""
        place = next((i for i, slot in enumerate(free) if self._contents[slot].owner is sequence), 0)
        return free.pop(place)

    def _copy(self, sequence: Sequence, origin: int, target: int, *, is_kept: bool) -> Copy:
        content, replaced = self._contents[origin], self._contents[target]
        is_sibling = is_kept and replaced.owner is sequence
        start = 0
        if is_sibling:  # two beams of one search share all that came before they parted
            alike = len(sequence.prompt_ids) + _agreement(content.output_ids, replaced.output_ids)
            start = min(alike, replaced.tokens)
        self._contents[target] = _Content(sequence, sequence.computed, content.output_ids)
        return Copy(target, origin, start, sequence.computed, with_source=not is_sibling)


def slots_of(sequences: abc.Sequence[Sequence]) -> list[int]:
    """Return the slots of some sequences, in their order."""
    return [slot for sequence in sequences for slot in sequence.slots]


def _agreement(first: list[int], second: list[int]) -> int:
    """Return how many ids two lists have in common from their beginnings."""
    alike, different = 0, min(len(first), len(second)) + 1  # they have so many in common, and not so many
    while different - alike > 1:  # by whole slices, as outputs may be long
        middle = (alike + different) // 2
        if first[alike:middle] == second[alike:middle]:
            alike = middle
        else:
            different = middle
    return alike
