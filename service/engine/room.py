"""What room there is for newcomers in the cache: in slots, and in tokens of memory.

Wide and narrow must not starve each other. A sequence is wide if it needs more than an eighth of the slots or of the
memory, as a search with many beams does. Together the wide ones hold at most three quarters, so there is always room
for narrow ones; only a single row of full length may take more, where the memory is that small. A sequence that finds
too little room when its turn comes has a claim: narrow ones are then admitted only to what a wide claimant leaves,
until enough has become free for it.

One request, and one client among several, may hold no more than three times what stays free, of slots and of memory (a
dynamic threshold, Choudhury and Hahne 1998): alone it gets three quarters, and the next one finds room. A client's wide
sequences are held to it among themselves, and the first of them is not: its own narrow ones could keep it out for ever.
"""

from __future__ import annotations

from collections import Counter, abc
from collections.abc import Hashable

from service.engine.admission import SHARE, three_quarters
from service.engine.kv_cache import KVBudget
from service.engine.sequence import Sequence

WIDE = 8  # more than one part in so many


def tokens_of(sequence: Sequence, budget: KVBudget) -> int:
    """Return how many tokens of the cache a sequence may come to take, in all its rows."""
    return budget.cost(sequence.width, sequence.longest, len(sequence.source_ids or ()))


class _Resource:
    """Slots, or tokens of memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = {True: 0, False: 0}  # by wide sequences, and by narrow ones
        self.claimed = {True: 0, False: 0}
        self._held_by: Counter[Hashable] = Counter()

    @property
    def free(self) -> int:
        return self.limit - sum(self.held.values())

    @property
    def is_used_up(self) -> bool:
        return self.free <= self.claimed[False]

    def is_wide(self, amount: int) -> bool:
        return amount > max(1, self.limit // WIDE)

    def take(self, amount: int, holders: abc.Sequence[Hashable], *, is_wide: bool) -> None:
        self.held[is_wide] += amount
        for holder in holders:
            self._held_by[holder] += amount

    def fits(self, amount: int, *, is_wide: bool) -> bool:
        if amount + self.claimed[False] > self.free:
            return False
        if is_wide:
            return self.held[True] + amount + self.claimed[True] <= max(amount, three_quarters(self.limit))
        wide = self.held[True] + self.claimed[True]
        if wide > three_quarters(self.limit):  # the claim fits once wide ones end, and none is admitted before it
            wide = max(self.held[True], self.claimed[True])
        return self.held[False] + amount <= self.limit - wide

    def may_be_held(self, amount: int, holders: abc.Sequence[Hashable]) -> bool:
        most = SHARE * (self.free - amount)
        held = [self._held_by[holder] for holder in holders]
        return all(not already or already + amount <= most for already in held)


class Room:
    """The room beside some running sequences, as newcomers are admitted one after the other."""

    def __init__(self, slots: int, budget: KVBudget, running: abc.Sequence[Sequence], *, shares_clients: bool) -> None:
        self._slots, self._tokens = _Resource(slots), _Resource(budget.tokens)
        self._budget, self._shares_clients = budget, shares_clients
        self.refused = 0  # narrow sequences without room, and any whose request or client holds all that it may
        for sequence in running:
            self.take(sequence)

    @property
    def is_used_up(self) -> bool:
        """Whether nobody can have a place any more."""
        return self._slots.is_used_up or self._tokens.is_used_up

    def take(self, sequence: Sequence) -> None:
        """Give a sequence its place."""
        is_wide = self._is_wide(sequence)
        holders = [sequence.permit, sequence.permit.client, *([_wide_of(sequence)] if is_wide else [])]
        for resource, amount in self._needs(sequence):
            resource.take(amount, holders, is_wide=is_wide)

    def fits_or_claims(self, sequence: Sequence) -> bool:
        """Return whether a sequence fits; if not, it is counted, and may claim the room that is next given back.

        The first wide sequence and the first narrow one that do not fit have such a claim.
        """
        is_wide, needs = self._is_wide(sequence), self._needs(sequence)
        holders: list[Hashable] = [sequence.permit]
        if self._shares_clients:
            holders.append(_wide_of(sequence) if is_wide else sequence.permit.client)
        if not all(resource.may_be_held(amount, holders) for resource, amount in needs):
            self.refused += 1
            return False
        if all(resource.fits(amount, is_wide=is_wide) for resource, amount in needs):
            return True
        if not self._slots.claimed[is_wide]:
            for resource, amount in needs:
                resource.claimed[is_wide] = amount
        self.refused += not is_wide  # narrow ones find room behind any number of wide ones
        return False

    def _needs(self, sequence: Sequence) -> list[tuple[_Resource, int]]:
        return [(self._slots, sequence.width), (self._tokens, tokens_of(sequence, self._budget))]

    def _is_wide(self, sequence: Sequence) -> bool:
        return any(resource.is_wide(amount) for resource, amount in self._needs(sequence))


def _wide_of(sequence: Sequence) -> Hashable:
    """Return who holds what a sequence's client holds by wide ones alone."""
    return sequence.permit.client, WIDE
