"""Which requests are let in: one permit a request, taken before any work is done for it.

A permit counts all that its request brings: slots (choices, beams, sentences, inputs) and tokens to compute before the
first can be decoded. Once a part of it runs, that part no longer counts here: slots and memory bound what runs. A
refused request has cost nothing. An admitted one is never refused for lack of room.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.engine.errors import Overloaded
from service.spending import SPENDING, Spending

SHARE = 3  # of four parts: what one may have of anything that others want, too


def three_quarters(limit: int) -> int:
    """Return the share of one, at least 1: of places in the queue, of slots, of memory."""
    return max(1, limit * SHARE // (SHARE + 1))


@dataclass(frozen=True)
class AdmissionLimits:
    """Bounds of what may wait."""

    max_waiting_slots: int = 1024
    max_waiting_tokens: int = 65536


class Admission:
    """Owner of the permits: how much is waiting that was let in, and whether more may come.

    Once there are several clients, what one of them has waiting is, but for its first request, at most three times what
    stays free (as in `Room`): so the flood of one leaves the others a quarter of the queue.
    """

    def __init__(self, limits: AdmissionLimits) -> None:
        self._slots = _Share(limits.max_waiting_slots)
        self._tokens = _Share(limits.max_waiting_tokens)
        self._clients: set[str] = set()  # that were ever here; keys are few

    @property
    def waiting_slots(self) -> int:
        """How many slots' worth of work was let in and has not begun."""
        return self._slots.waiting

    @property
    def waiting_tokens(self) -> int:
        """How many tokens of it have to be computed."""
        return self._tokens.waiting

    def is_full_for(self, client: str) -> bool:
        """Whether any request of a client would be refused."""
        return not self._fits(client, 1, 1)

    def admit(self, client: str, slots: int, tokens: int) -> Permit:
        """Let a client's request in; raises `Overloaded` if it does not fit beside what waits.

        A request counts as three quarters of the queue at most. So alone every request fits, whose own bounds are those
        of the API, and even beside the largest there is room for another client's.
        """
        if not self._fits(client, slots, tokens):
            raise Overloaded
        self._clients.add(client)
        permit = Permit(self, client)
        permit.settle(slots, tokens)
        return permit

    def change(self, permit: Permit, slots: int, tokens: int) -> None:
        """Count what a permit's request has waiting from now on."""
        self._slots.change(permit.client, permit.slots, slots)
        self._tokens.change(permit.client, permit.tokens, tokens)

    def _fits(self, client: str, slots: int, tokens: int) -> bool:
        is_shared = bool(self._clients - {client})
        return self._slots.fits(client, slots, is_shared) and self._tokens.fits(client, tokens, is_shared)

    def check_integrity(self, permits: set[Permit]) -> None:
        """Assert that what waits is what the open permits say."""
        self._slots.check_integrity([permit.slots for permit in permits])
        self._tokens.check_integrity([permit.tokens for permit in permits])


class _Share:
    """What waits of one kind, in all and by client."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.waiting = 0
        self._of: dict[str, int] = {}

    def change(self, client: str, before: int, after: int) -> None:
        difference = self._counted(after) - self._counted(before)
        self.waiting += difference
        self._of[client] = self._of.get(client, 0) + difference
        if not self._of[client]:
            del self._of[client]

    def check_integrity(self, amounts: list[int]) -> None:
        assert self.waiting == sum(map(self._counted, amounts)), "bug: what waits is miscounted"

    def _counted(self, amount: int) -> int:
        return min(amount, three_quarters(self._limit))

    def fits(self, client: str, amount: int, is_shared: bool) -> bool:
        amount, own = self._counted(amount), self._of.get(client, 0)
        # What was let in may turn out to be more, as sentences are counted later, and an only client may fill the
        # queue: more than three quarters keep no other client out.
        others = sum(self._counted(waiting) for other, waiting in self._of.items() if other != client)
        free = self._limit - own - others - amount
        if free < 0 or not is_shared or not self.waiting:  # where nothing waits nobody is kept out
            return free >= 0
        if not own:  # its first fits beside the others, whose quarter may be in use, if anything is left
            return free >= 1
        return own + amount <= SHARE * free


class Permit:
    """What one request still has waiting; a context manager, which gives back what never began."""

    def __init__(self, admission: Admission, client: str) -> None:
        self._admission = admission
        self.client = client
        self.slots = 0
        self.tokens = 0
        self.spending = SPENDING.get() or Spending()

    @classmethod
    def of_one(cls) -> Permit:
        """Return a permit beside any queue, as for a sequence of the engine's own."""
        return Admission(AdmissionLimits()).admit("", 1, 0)

    def settle(self, slots: int, tokens: int) -> None:
        """Set what waits, as soon as it is known better: sentences are counted and texts encoded after admission."""
        self._admission.change(self, slots, tokens)
        self.slots, self.tokens = slots, tokens

    def begin(self, slots: int, tokens: int) -> None:
        """Take off what leaves the queue to run."""
        self.settle(max(0, self.slots - slots), max(0, self.tokens - tokens))

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, *_: object) -> None:
        self.settle(0, 0)
