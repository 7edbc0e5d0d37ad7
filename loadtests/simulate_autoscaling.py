"""Autoscaling without a cluster: the service's own policy over made-up hours of traffic, beside Ray's default policy.

`python -m loadtests.simulate_autoscaling --out FOLDER` prints a table and draws replicas, queue, p95 and cost by time.
The policies run inside Ray's own delays and bounds; only the clock and the replicas are made up. A replica is a decoder
whose step takes longer the more rows it has, and which computes prompts between steps, as measured with GPT-2
(`service/engine/benchmarks.md`); it starts in 8 s in a pod that is there, in a minute in a new pod, in three on a new
node.
Signals come late, as they do in Ray: pushed once a second, averaged over the look-back period.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from ray.serve import autoscaling_policy as ray_policy
from ray.serve.config import AutoscalingConfig
from rich.console import Console
from rich.table import Table

from service.app import autoscaling_config
from service.autoscaling import LoadPolicy
from service.models_file import Autoscaling

TICK_S = 0.5  # of the simulation, and about what Ray's control loop takes
PUSH_S = 1.0  # between two reports of a replica
SLOTS = 32
STEP_S, STEP_S_PER_ROW = 0.0038, 0.00078  # GPT-2 124M on two cores: 1, 8, 32 rows in 4.5, 10, 29 ms
PREFILL_TOKENS_PER_SECOND = 1200  # of the same
STARTS_S = (8.0, 60.0, 180.0)
SLO_S = 1.0  # time to first token that 95 % of a minute's requests must keep


@dataclass(frozen=True)
class Trace:
    """Traffic: arrivals by time, and how many tokens each asks for."""

    name: str
    arrivals: NDArray[np.float64]  # seconds, ascending
    prompts: NDArray[np.int64]  # tokens of each
    tokens: NDArray[np.int64]  # to decode
    seconds: float


def trace(name: str, rate: Callable[[float], float], seconds: float, *, sigma: float = 0.6, seed: int = 0) -> Trace:
    """Make Poisson arrivals at `rate(t)` a second, with log-normal prompts and outputs (medians 30, 60)."""
    rng = np.random.default_rng(seed)
    seen = [
        t + rng.random() * TICK_S for t in np.arange(0, seconds, TICK_S) for _ in range(rng.poisson(rate(t) * TICK_S))
    ]
    arrivals = np.sort(np.array(seen))
    tokens = np.clip(rng.lognormal(np.log(60), sigma, len(arrivals)), 1, 2000).astype(np.int64)
    prompts = np.clip(rng.lognormal(np.log(30), sigma, len(arrivals)), 1, 2000).astype(np.int64)
    return Trace(name, arrivals, prompts, tokens, seconds)


def traces(hours: float = 1.0) -> list[Trace]:
    """Return an hour each of what services meet."""
    seconds = 3600 * hours
    wave = lambda t: 22 - 20 * np.cos(2 * np.pi * t / seconds)  # noqa: E731  # one line each is easiest to compare
    return [
        trace("ramp", lambda t: 2 + 48 * t / seconds, seconds),
        trace("spike", lambda t: 55.0 if 0.4 < t / seconds < 0.5 else 6.0, seconds),
        trace("wave", wave, seconds),
        trace("flapping", lambda t: 32.0 if t % 120 < 60 else 4.0, seconds),
        trace("heavy-tailed", lambda _t: 9.0, seconds, sigma=1.5),
    ]


@dataclass
class Replica:
    """A decoder with slots and a queue."""

    ready_at: float
    waiting: deque[tuple[int, float, float]] = field(default_factory=deque)  # number, tokens of prompt and output
    left: list[float] = field(default_factory=list)  # tokens of the running sequences
    is_leaving: bool = False
    owed: float = 0.0  # seconds by which the last tick's work was longer than it

    @property
    def ongoing(self) -> int:
        """Requests that run or wait here."""
        return len(self.waiting) + len(self.left)

    def advance(self, now: float) -> Iterator[tuple[int, float]]:
        """Prefill and decode for a tick; yield the numbers of those that got their first token, and when."""
        remaining = TICK_S - self.owed
        while remaining > 0 and (self.waiting or self.left):
            if self.waiting and len(self.left) < SLOTS:
                number, prompt, tokens = self.waiting.popleft()
                self.left.append(tokens)
                remaining -= prompt / PREFILL_TOKENS_PER_SECOND
                yield number, now + TICK_S - remaining + self._step()
            else:
                steps = min(remaining / self._step(), *self.left)
                remaining -= steps * self._step()
                self.left = [tokens - steps for tokens in self.left if tokens > steps]
        self.owed = max(0.0, -remaining)

    def _step(self) -> float:
        return STEP_S + STEP_S_PER_ROW * len(self.left)


@dataclass
class Result:
    """What came of a trace under a policy, a value for each second or minute."""

    replicas: list[int] = field(default_factory=list)  # target, each tick
    queue: list[int] = field(default_factory=list)
    p95: list[float] = field(default_factory=list)  # of the time to first token, of each minute's arrivals

    @property
    def reversals_an_hour(self) -> float:
        """How often the target turned from growing to shrinking or back."""
        moves = np.sign(np.diff(self.replicas))
        moves = moves[moves != 0]
        return float((moves[1:] != moves[:-1]).sum() / (len(self.replicas) * TICK_S / 3600)) if len(moves) else 0.0

    @property
    def kept(self) -> float:
        """Share of the minutes of whose requests 95 % began in time."""
        return float(np.mean(np.array(self.p95) <= SLO_S))

    @property
    def replica_hours(self) -> float:
        """What it cost."""
        return sum(self.replicas) * TICK_S / 3600


Policy = Callable[[Any], tuple[float, dict[str, Any]]]


def default_policy(context: Any) -> tuple[float, dict[str, Any]]:
    """Ray's own."""
    desired, state = ray_policy._core_replica_queue_length_policy(context)
    return desired, state


def simulate(traffic: Trace, policy: Policy, bounds: AutoscalingConfig, start_s: float = STARTS_S[0]) -> Result:
    """Run a trace through replicas that a policy adds and removes, each of which starts in so many seconds."""
    decide = ray_policy._apply_autoscaling_config(policy)
    result = Result()
    state: dict[str, Any] = {}
    replicas = [Replica(0.0) for _ in range(bounds.min_replicas)]
    target, arrived = bounds.min_replicas, 0
    reports: deque[tuple[int, int, int]] = deque(maxlen=max(1, round(bounds.look_back_period_s / PUSH_S)))
    waits = np.full(len(traffic.arrivals), np.inf)  # of those that never begin
    clock = SimpleNamespace(time=lambda: 0.0)
    with patch.object(ray_policy, "time", clock):  # Ray's delays, in the simulation's time
        for tick in range(round(traffic.seconds / TICK_S)):
            now = tick * TICK_S
            clock.time = lambda now=now: now
            serving = [replica for replica in replicas if replica.ready_at <= now and not replica.is_leaving]
            while arrived < len(traffic.arrivals) and traffic.arrivals[arrived] <= now:
                chosen = min(serving or replicas, key=lambda replica: replica.ongoing)
                lengths = float(traffic.prompts[arrived]), float(traffic.tokens[arrived])
                chosen.waiting.append((arrived, *lengths))
                arrived += 1
            for replica in replicas:
                if replica.ready_at <= now:
                    for number, began in replica.advance(now):
                        waits[number] = began - traffic.arrivals[number]
            replicas = [replica for replica in replicas if replica.ongoing or not replica.is_leaving]
            if now % PUSH_S == 0:
                tokens = sum(prompt for replica in replicas for _, prompt, _ in replica.waiting)
                slots = sum(len(replica.left) for replica in replicas)
                reports.append((sum(replica.ongoing for replica in replicas), round(tokens), slots))
            context = _context(reports, serving, target, now, state, bounds)
            wanted, state = decide(context)
            target = min(max(wanted, bounds.min_replicas), bounds.max_replicas)
            _scale(replicas, target, now, start_s)
            result.replicas.append(target)
            result.queue.append(sum(len(replica.waiting) for replica in replicas))
    minutes = np.split(waits, np.searchsorted(traffic.arrivals, np.arange(60, traffic.seconds, 60)))
    result.p95 = [float(np.quantile(each, 0.95, method="inverted_cdf")) if len(each) else 0.0 for each in minutes]
    return result


def _context(
    reports: deque[tuple[int, int, int]],
    serving: list[Replica],
    target: int,
    now: float,
    state: dict[str, Any],
    bounds: AutoscalingConfig,
) -> Any:
    ongoing, tokens, slots = (float(np.mean(column)) for column in zip(*reports, strict=True))
    return SimpleNamespace(
        current_num_replicas=len(serving),
        target_num_replicas=target,
        total_num_requests=ongoing,
        aggregated_metrics={"queued_tokens": {"all": tokens}, "slots_used": {"all": slots}},
        policy_state=state,
        current_time=now,
        config=bounds,
    )


def _scale(replicas: list[Replica], wanted: int, now: float, start_s: float) -> None:
    """Start replicas, which are ready after a while, or let the emptiest finish and go."""
    staying = [replica for replica in replicas if not replica.is_leaving]
    replicas += [Replica(now + start_s) for _ in range(wanted - len(staying))]
    for replica in sorted(staying, key=lambda replica: replica.ongoing)[: max(0, len(staying) - wanted)]:
        replica.is_leaving = True


# One replica keeps the SLO up to some 8 requests a second, with about 16 of its 32 slots in use.
OURS = Autoscaling(max_replicas=10, ongoing_requests=20, queued_tokens=400, slots_used=16)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Ray still holds the look-back period against an old field
    BOUNDS = AutoscalingConfig(**autoscaling_config(OURS, SLOTS))
RAYS = AutoscalingConfig(min_replicas=1, max_replicas=10, target_ongoing_requests=20)
POLICIES: dict[str, tuple[Policy, AutoscalingConfig]] = {
    "load": (LoadPolicy(**OURS.policy_options(SLOTS)), BOUNDS),
    "Ray's, its delays": (default_policy, RAYS),
    "Ray's, our delays": (default_policy, BOUNDS),
}


def main() -> None:
    """Simulate every trace under every policy; print the table, draw the plots."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.simulate_autoscaling", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the plots")
    parser.add_argument("--hours", type=float, default=1.0, help="length of each trace")
    options = parser.parse_args()
    table = Table("start", "trace", "policy", "minutes in time", "reversals/h", "replica hours", "most replicas")
    for start_s, traffic in itertools.product(STARTS_S, traces(options.hours)):
        results = {name: simulate(traffic, policy, bounds, start_s) for name, (policy, bounds) in POLICIES.items()}
        for name, found in results.items():
            cells = f"{found.kept:.0%}", f"{found.reversals_an_hour:.0f}", f"{found.replica_hours:.2f}"
            table.add_row(f"{start_s:g} s", traffic.name, name, *cells, str(max(found.replicas)))
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            draw(traffic, results, options.out / f"{traffic.name}-{start_s:g}.png")
    Console().print(table)


def draw(traffic: Trace, results: dict[str, Result], path: Path) -> None:
    """Draw arrivals, replicas, queue and p95 over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 9), layout="constrained")
    arrivals, replicas, queue, p95 = figure.subplots(4, sharex=True)
    counts, edges = np.histogram(traffic.arrivals, bins=round(traffic.seconds / 10))
    arrivals.plot(edges[:-1] / 60, counts / 10)
    for name, found in results.items():
        minutes = np.arange(len(found.replicas)) * TICK_S / 60
        replicas.step(minutes, found.replicas, label=f"{name}: {found.replica_hours:.2f} replica hours")
        queue.plot(minutes, found.queue)
        p95.plot(np.arange(len(found.p95)), found.p95)
    p95.axhline(SLO_S, color="grey", linestyle=":")
    p95.set_yscale("symlog", linthresh=0.1)
    for axes, label in (
        (arrivals, "requests/s"),
        (replicas, "replicas"),
        (queue, "waiting"),
        (p95, "p95 to first token, s"),
    ):
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    replicas.legend(loc="upper left", fontsize="small")
    p95.set_xlabel(f"minutes ({traffic.name})")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main()
