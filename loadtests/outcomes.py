"""What came of a load test, by task: counted as the answers come, and printed as a table at the end."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

PERCENTILES = (50, 95, 99)


@dataclass
class Outcome:
    """The answers of one task."""

    seconds: list[float] = field(default_factory=list)  # of whole answers
    first_token_s: list[float] = field(default_factory=list)  # of streams
    tokens: int = 0  # generated, or read where nothing is generated
    refused: int = 0  # with 429, which is no error
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """All that were sent."""
        return len(self.seconds) + self.refused + self.errors.total()


class Outcomes:
    """The outcomes of all tasks, since the first request; and how busy the load's own process was."""

    def __init__(self) -> None:
        self.by_task: defaultdict[str, Outcome] = defaultdict(Outcome)
        self._started, self._cpu_started = time.monotonic(), time.process_time()

    def seconds(self) -> float:
        """Return how long the test has run."""
        return time.monotonic() - self._started

    def generator_cpu(self) -> float:
        """Return the share of one core that this process used; near 1 it measures itself and not the service."""
        return (time.process_time() - self._cpu_started) / self.seconds()

    def table(self) -> str:
        """Return the table by task, with the percentiles in milliseconds."""
        head = ("task", "req/s", "tokens/s", "first token p50 / p95 / p99", "latency p50 / p95 / p99", "errors", "429s")
        rows = [
            (
                task,
                f"{len(outcome.seconds) / self.seconds():.1f}",
                f"{outcome.tokens / self.seconds():.0f}",
                _percentiles(outcome.first_token_s),
                _percentiles(outcome.seconds),
                str(outcome.errors.total()),
                str(outcome.refused),
            )
            for task, outcome in sorted(self.by_task.items())
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)
        ]
        return "\n".join([lines[0], "-|-".join("-" * width for width in widths), *lines[1:]])

    def broken_thresholds(self, limits: Thresholds) -> Iterator[str]:
        """Yield what was worse than it may be."""
        for task, outcome in sorted(self.by_task.items()):
            errors = outcome.errors.total() / max(1, outcome.requests)
            refused = outcome.refused / max(1, outcome.requests)
            measured = {
                "errors": (errors, limits.error_ratio, f"{errors:.2%}: {dict(outcome.errors)}"),
                "429s": (refused, limits.refused_ratio, f"{refused:.2%}"),
                "p95 latency": (p95 := percentile(outcome.seconds, 95), limits.latency_s, f"{p95:.2f} s"),
                "p95 first token": (p95 := percentile(outcome.first_token_s, 95), limits.first_token_s, f"{p95:.2f} s"),
            }
            for name, (value, limit, text) in measured.items():
                if limit is not None and value > limit:
                    yield f"{task}: {name} {text}, allowed {limit:g}"

    def summary(self) -> str:
        """Return the table, and what it is worth."""
        cpu = self.generator_cpu()
        remark = "" if cpu < 0.8 else "; it may have measured itself: run it on another machine"
        return f"{self.table()}\n{self.seconds():.0f} s; the load's own process used {cpu:.0%} of a core{remark}"


@dataclass(frozen=True)
class Thresholds:
    """What may not be exceeded; None: anything may."""

    error_ratio: float | None = None
    refused_ratio: float | None = None
    latency_s: float | None = None
    first_token_s: float | None = None


def percentile(seconds: list[float], percent: float) -> float:
    """Return a percentile by the nearest rank, 0 of none."""
    return sorted(seconds)[max(0, math.ceil(percent / 100 * len(seconds)) - 1)] if seconds else 0.0


def _percentiles(seconds: list[float]) -> str:
    if not seconds:
        return "–"
    return " / ".join(f"{percentile(seconds, percent) * 1000:.0f}" for percent in PERCENTILES)
