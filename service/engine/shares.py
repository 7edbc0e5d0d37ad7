"""Shares of the time that steps take: whose work goes on at once, and whose rests.

All clients' rows are decoded together as long as that costs nobody more than a share. Else a client with many or dear
rows would give its own pace to those with few: a step takes as long as all of its rows. So each client's time is
counted (start-time fair queueing, Goyal et al. 1996), and one who is ahead of the others is paused until they have had
theirs. A client with shorter steps is charged less for them, down to a third, so of two clients the heavy one keeps at
least a quarter of the time, even if the light one wants all of it. A client that arrives or returns has up to
`CREDIT_S` of credit: it is not paused during short requests, and nobody is paused for it, or streams would stall
whenever somebody arrives. Only clients with much longer steps are, but never for long at a time.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Literal

Kind = Literal["prefill", "decode"]  # of steps

CREDIT_S = 1.0  # at most, of what was not used: a few short requests
LEAST_PRICE = 1 / 3  # of a second of a client whose steps are short, beside those of the client whose are longest
MUCH_LONGER = 3  # times as long steps: such a client rests for one that returns
STEPS_WAITED = 3  # of its own, that a client which comes waits at most for another's decode
LONGEST_REST_S = 0.5  # then a client has a step, whoever else is here
AHEAD_S = 0.05  # at least, before anybody rests: decoding together is cheaper than in turns
TURN_S = 0.01  # for which a client that comes waits, as rows of another decode
# Seconds for which a client still counts as here after it was last seen: the others' steps yield to it, and take turns.
LATELY_S = 5.0
# Steps of a client alone, the shortest of which is what it needs: any of them may have been slow, as the machine had
# other things to do, and would say that nobody need rest for it.
STEPS_ALONE = 8


class Shares:
    """Owner of how much time each client has had; keys are few, and so clients are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, float] = {}  # when each client was last here
        self._had: dict[str, float] = {}  # seconds; of newcomers as if they had been here
        # Time that each has not used, in seconds: it may be further ahead of the others by so much, and clients with
        # much longer steps rest until it is used.
        self._credit: dict[str, float] = {}
        self._went_on: dict[str, float] = {}  # when each client that is here had its last step
        # Rows (or tokens) and seconds of the last steps of a client alone, of each kind.
        self._alone: defaultdict[tuple[str, Kind], deque[tuple[int, float]]]
        self._alone = defaultdict(lambda: deque(maxlen=STEPS_ALONE))
        self._needs: dict[str, float] = {}  # seconds that each client's last step would have taken alone
        self._row_took: dict[str, float] = {}  # seconds of each row of its last decode, whatever else the machine did
        self._present: Set[str] = frozenset()
        self._least = 0.0  # of those who are here

    def may_run(self, present: Set[str]) -> Set[str]:
        """Return those of the present clients whose work goes on; the others rest."""
        self._least = max(self._least, min((self._had[client] for client in present & self._present), default=0.0))
        for client in present - self._present:
            had = self._had.get(client, 0.0)
            used = had - self._credit.get(client, 0.0)  # what it did not use of its credit stays its own
            self._had[client] = max(had, self._least)
            self._credit[client] = self._had[client] - max(used, self._least - CREDIT_S)
        now = self._clock()
        self._went_on = {client: self._went_on.get(client, now) for client in present}
        self._present = present
        self._seen |= dict.fromkeys(present, now)
        least = min((self._had[client] for client in present), default=self._least)
        self._least = max(self._least, least)
        returned = [client for client in present if self._credit[client]]
        may_run = {
            client
            for client in present
            if self._had[client] <= self._most_of(client, least, returned)
            or now - self._went_on[client] > LONGEST_REST_S
        }
        self._went_on |= dict.fromkeys(may_run, now)
        return may_run

    def _most_of(self, client: str, least: float, returned: Iterable[str]) -> float:
        """Return how much time a client may have had before it rests, beside one who had the least."""
        longest = self._needs.get(client, 0.0) / MUCH_LONGER
        for other in returned:
            if self._needs.get(other, longest) < longest:
                least = min(least, self._had[other] - self._credit[other])
        return least + AHEAD_S + self._credit[client]

    def are_ahead(self, clients: Set[str]) -> bool:
        """Whether all of some clients have had more time than one who was here lately, and need not be in a hurry."""
        return clients == self._ahead_of(self._here_lately(), clients)

    def ahead_among(self, clients: Set[str]) -> Set[str]:
        """Return those of some clients who have had more time than another of them, and come behind it."""
        return self._ahead_of(clients, clients)

    def _ahead_of(self, others: Iterable[str], clients: Set[str]) -> Set[str]:
        least = min((self._had.get(other, 0.0) for other in others), default=0.0)
        return {client for client in clients if self._had.get(client, 0.0) > least + AHEAD_S}

    def turns(self) -> Mapping[str, float]:
        """Return how many rows at a time each present client may decode while another was here lately.

        As many as take no longer than `TURN_S`, or than a few of the other's steps: for those it waits when it comes.
        """
        here = self._here_lately()
        if len(here) < 2:
            return {}
        turn_s = max(TURN_S, STEPS_WAITED * min(self._needs.get(client, 0.0) for client in here))
        return {client: turn_s / took for client in self._present if (took := self._row_took.get(client))}

    def _here_lately(self) -> list[str]:
        lately = self._clock() - LATELY_S
        return [client for client, seen in self._seen.items() if seen > lately]

    def charge(self, work: Mapping[str, int], seconds: float, kind: Kind = "decode") -> None:
        """Count a decode of so many rows, or a prefill of so many tokens, of each client, which took so long.

        Each pays by its rows, but no less than a step of its own would take: nobody need rest for a client who would be
        no quicker alone. A step alone counts as no longer than the newest one that the client shared; else one that was
        slow, as the machine stood still, would be held against it for as long as the others are here.
        """
        total = sum(work.values())
        taken = {client: seconds * count / total for client, count in work.items()}
        for client, count in work.items():
            steps = self._alone[client, kind]
            if len(work) == 1:
                steps.append((count, seconds))
            alike = [alone_s * min(1.0, count / rows) for rows, alone_s in steps if 2 * rows >= count]
            self._needs[client] = min(alike, default=taken[client])
            if self._needs[client] > seconds:
                self._needs[client] = seconds
                steps.append((count, seconds))
            if kind == "decode":
                self._row_took[client] = seconds / total
        longest = max(self._needs.get(client, 0.0) for client in self._present | work.keys())
        for client in work:
            needs = self._needs[client]
            price = max(LEAST_PRICE, needs / longest) if longest else 1.0
            self._had[client] = self._had.get(client, 0.0) + price * max(taken[client], needs)
