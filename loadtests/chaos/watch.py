"""What a run looks like from outside, twice a second: nodes, replicas, and what happened when."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from loadtests.chaos.cluster import Cluster
from loadtests.hostile.polite import Sample
from loadtests.hostile.verdicts import Verdict

EVERY_S = 0.5


@dataclass(frozen=True)
class Look:
    """One look at the cluster."""

    at: float  # time.monotonic()
    nodes: Mapping[str, int]  # hosts by type; those that start and end count
    states: Mapping[str, int]  # replicas of the model that is looked at, by state
    spread: tuple[int, ...]  # replicas that run, by node, the most first


@dataclass(frozen=True)
class Event:
    """Something that was done, or seen."""

    at: float  # time.monotonic()
    what: str


@dataclass
class Found:
    """Everything that one scenario showed."""

    name: str
    started: float
    samples: list[Sample] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    users: list[tuple[float, int]] = field(default_factory=list)  # how many there are from when on
    verdicts: list[Verdict] = field(default_factory=list)

    def note(self, what: str) -> float:
        """Note that something happens now; the time."""
        self.events.append(Event(time.monotonic(), what))
        return self.events[-1].at

    def holds(self) -> bool:
        """Whether every verdict that could be reached holds."""
        return all(verdict.holds is not False for verdict in self.verdicts)


async def watch(cluster: Cluster, model: str, looks: list[Look]) -> None:
    """Look without end; while the head is gone nothing is known of replicas."""
    while True:
        looks.append(await asyncio.to_thread(look, cluster, model))
        await asyncio.sleep(EVERY_S)


def look(cluster: Cluster, model: str) -> Look:
    """Look once."""
    try:
        status = cluster.status()
    except OSError:
        return Look(time.monotonic(), dict(cluster.cloud.counts()), {}, ())
    spread = Counter(status.running(model).values())
    counts = tuple(sorted(spread.values(), reverse=True))
    return Look(time.monotonic(), dict(cluster.cloud.counts()), dict(status.states(model)), counts)
