"""Shares of the time that steps take: whose work goes on at once, and whose rests.

All clients' rows are decoded together as long as that costs nobody more than a share. Else a client with many or dear
rows would give its own pace to those with few: a step takes as long as all of its rows. So each client's time is
counted (start-time fair queueing, Goyal et al. 1996), and one who is ahead of the others is paused until they have had
theirs. A client with shorter steps is charged less for them, down to a third, so of two clients the heavy one keeps at
least a quarter of the time, even if the light one wants all of it. A client that arrives or returns has up to
`CREDIT_S` of credit: it is not paused during short requests, and nobody is paused for it, or streams would stall
whenever somebody arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from typing import Literal

from service.engine.admission import SHARE

Kind = Literal["prefill", "decode"]  # of steps

CREDIT_S = 1.0  # at most, of what was not used: a few short requests
AHEAD_S = 0.05  # at least, before anybody rests: decoding together is cheaper than in turns
LATELY_S = 5.0  # since a client was here, for whose models the others' steps yield


class Shares:
    """Owner of how much time each client has had; keys are few, and so clients are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, float] = {}  # when each client was last here
        self._had: dict[str, float] = {}  # seconds; of newcomers as if they had been here
        self._credit: dict[str, float] = {}  # seconds that each may be further ahead
        # Rows (or tokens) and seconds of the last step of a client alone, of each kind.
        self._alone: dict[tuple[str, Kind], tuple[int, float]] = {}
        self._own: dict[str, float] = {}  # seconds of each client's part in its last step
        self._present: Set[str] = frozenset()
        self._least = 0.0  # of those who are here

    def first(self, present: Set[str]) -> Set[str]:
        """Return those of the present clients whose work goes on; the others rest."""
        self._least = max(self._least, min((self._had[client] for client in present & self._present), default=0.0))
        for client in present - self._present:
            had = self._had.get(client, 0.0)
            self._credit[client] = min(CREDIT_S, max(0.0, self._least - had))
            self._had[client] = max(had, self._least)
        self._present = present
        self._seen |= dict.fromkeys(present, self._clock())
        least = min((self._had[client] for client in present), default=self._least)
        self._least = max(self._least, least)
        return {client for client in present if self._had[client] <= least + AHEAD_S + self._credit[client]}

    def are_ahead(self, clients: Set[str]) -> bool:
        """Whether all of some clients have had more time than one who was here lately, and need not be in a hurry."""
        lately = self._clock() - LATELY_S
        least = min((had for client, had in self._had.items() if self._seen.get(client, 0.0) > lately), default=0.0)
        return all(self._had.get(client, 0.0) > least + AHEAD_S for client in clients)

    def charge(self, work: Mapping[str, int], seconds: float, kind: Kind = "decode") -> None:
        """Count a decode of so many rows, or a prefill of so many tokens, of each client, which took so long.

        Each pays by its rows, but no less than a step of its own would take: nobody need rest for a client who would be
        no quicker alone. A step alone counts as no longer than the newest one that the client shared; else one that was
        slow once, as the machine stood still, would be held against it for as long as the others are here.
        """
        total = sum(work.values())
        for client, count in work.items():
            if len(work) == 1:
                self._alone[client, kind] = count, seconds
            alone_count, alone_s = self._alone.get((client, kind), (1, 0.0))
            alone = alone_s * min(1.0, count / alone_count)
            if alone > seconds:
                alone, self._alone[client, kind] = seconds, (count, seconds)
            self._own[client] = max(seconds * count / total, alone)
        longest = max(self._own.get(client, 0.0) for client in self._present | work.keys())
        for client in work:
            own = self._own[client]
            self._had[client] = self._had.get(client, 0.0) + own * (max(1 / SHARE, own / longest) if longest else 1.0)
