"""How many replicas a model needs, from what its replicas say of their load.

Ray Serve asks this policy several times a second, in its controller, and applies the delays and bounds of the
`autoscaling_config` to the answer. Its own policy goes by ongoing requests alone: a request for two tokens counts like
one for two hundred, and as a queue drains it tears down what it has just built up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from service.schedule import scheduled_minimum

MARGIN = 0.7  # of what the remaining replicas bear, they may be loaded with when one goes
SEEN_WITHIN_S = 4.0  # of the first start: a load that has just come is seen whole only then, as it is a mean of late
HARDLY_ANY = 1e-6  # replicas' worth of load, which keeps the last one


class Context(Protocol):
    """What is used of Ray's `AutoscalingContext`."""

    current_num_replicas: int
    target_num_replicas: int
    total_num_requests: float
    aggregated_metrics: Mapping[str, Mapping[Any, float]] | None
    policy_state: dict[str, Any]
    current_time: float | None


class LoadPolicy:
    """Enough replicas that none bears more than it can at the latency that was asked for.

    What one replica bears is measured by a load test, and given as ongoing requests, queued tokens and used slots. The
    load is the largest of the three sums, each over what one replica bears; so it is counted in replicas. It takes
    effect at once upwards, but no more than doubles the replicas in one decision. Downwards the highest load of late
    counts, which fades with a half-life of `hold_s`, and one replica goes at a time, if the others then still have a
    margin. So neither a lull between two waves nor the drain of a queue takes away what the next wave needs. The last
    replica may go once none was asked anything, however short, since it last told of its load.

    While replicas start, which takes minutes where a node has to come first, what waits grows whatever is decided. So
    of what exceeds the running replicas only the share counts that is theirs, as the starting ones will take the rest.
    But what was there as the first of them began counts whole, as far as it still is: it did not grow by waiting.

    `schedule` has windows of the week (`service.schedule`) in which there are so many replicas at least.
    """

    def __init__(
        self,
        ongoing_requests: float,
        queued_tokens: float,
        slots_used: float,
        hold_s: float,
        schedule: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.schedule = schedule
        self.bears = {"queued_tokens": queued_tokens, "slots_used": slots_used}
        self.ongoing_requests = ongoing_requests
        self.hold_s = hold_s

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """Return the wanted number of replicas, and the load that is remembered with its time."""
        now = context.current_time or 0.0
        whole = self._load(context)
        needed, began = self._needed(context, whole, now)
        load = max(self._discounted(context, whole), min(whole, needed))
        peak, since = context.policy_state.get("peak", (0.0, now))
        passed = max(0.0, now - since)  # the clock may have been set back
        held = max(load, peak * 0.5 ** (passed / self.hold_s))
        wanted = self.wanted(load, held, context.target_num_replicas)
        state = {"peak": (held, now), "needed": (needed, began)}
        return max(wanted, scheduled_minimum(self.schedule, now)), state

    @staticmethod
    def _needed(context: Context, load: float, now: float) -> tuple[float, float | None]:
        """Return the load when the first starting replica began, and when that was; if none starts, the load now."""
        needed, began = context.policy_state.get("needed", (0.0, None))
        if not 0 < context.current_num_replicas < context.target_num_replicas:
            return load, None
        began = now if began is None else began
        return (load if now - began <= SEEN_WITHIN_S else needed), began

    @staticmethod
    def _discounted(context: Context, load: float) -> float:
        """Return the load without what the starting replicas will take of it."""
        running, target = context.current_num_replicas, context.target_num_replicas
        if not 0 < running < target or load <= running:
            return load
        return running + (load - running) * running / target

    def _load(self, context: Context) -> float:
        """Return the load, in replicas."""
        metrics = context.aggregated_metrics or {}
        shares = [sum(metrics.get(name, {}).values()) / bears for name, bears in self.bears.items()]
        least = HARDLY_ANY if sum(metrics.get("asked", {}).values()) else 0.0
        return max([context.total_num_requests / self.ongoing_requests, least, *shares])

    @staticmethod
    def wanted(load: float, held: float, replicas: int) -> int:
        """Return the number of replicas for a load, and for the highest of late."""
        up, down = math.ceil(load), math.ceil(held / MARGIN)
        if up > replicas:
            return min(up, max(1, 2 * replicas))
        if replicas == 1 and load == 0:  # nothing to hold on to; Serve waits for its `downscale_to_zero_delay_s`
            return 0
        return replicas - 1 if down < replicas else replicas
