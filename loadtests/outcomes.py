"""What came of a load test, by task: counted as the answers come, added up over processes, and judged at the end."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PERCENTILES = (50, 95, 99)
SLO = {  # the options `--slo-…`, and what each bounds
    "latency": "seconds of a whole answer that is good",
    "first-token": "seconds until the first token of one",
    "per-token": "seconds for each further token of one",
}


@dataclass(frozen=True)
class Answered:
    """One whole answer; times in seconds."""

    seconds: float
    tokens: int  # generated, or read where nothing is generated
    first_token_s: float | None = None  # of a stream
    between_s: tuple[float, ...] = ()  # from each piece of a stream to the next
    per_token_s: float | None = None  # of a stream, after its first token


@dataclass(frozen=True)
class Slo:
    """What an answer must keep to count as good, in seconds; None: anything goes."""

    latency_s: float | None = None
    first_token_s: float | None = None
    per_token_s: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether anything is asked for."""
        return any(bound is not None for bound in asdict(self).values())

    def keeps(self, answer: Answered) -> bool:
        """Whether an answer keeps all of it; one that is no stream has no first token to keep anything with."""
        measured = (answer.seconds, answer.first_token_s, answer.per_token_s)
        bounds = (self.latency_s, self.first_token_s, self.per_token_s)
        return all(
            bound is None or value is None or value <= bound for value, bound in zip(measured, bounds, strict=True)
        )


@dataclass
class Outcome:
    """The answers of one task; times in seconds."""

    sent: int = 0
    seconds: list[float] = field(default_factory=list)  # of whole answers
    first_token_s: list[float] = field(default_factory=list)  # of streams
    between_s: list[float] = field(default_factory=list)  # of streams, between pieces: inter-token latency
    per_token_s: list[float] = field(default_factory=list)  # of streams: time per output token, one for each
    tokens: int = 0
    good: int = 0  # answers that kept the SLO
    rated: Counter[str] = field(default_factory=Counter)  # answers, tokens and good answers of which rates are told
    refused: int = 0  # with 429, which is no error
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """All of which something came."""
        return len(self.seconds) + self.refused + self.errors.total()

    @property
    def unfinished(self) -> int:
        """Those of which nothing came before the end."""
        return max(0, self.sent - self.requests)

    @property
    def failures(self) -> Counter[str]:
        """Errors by what went wrong, with those of which nothing came: a service that hangs has failed them."""
        return self.errors + Counter({"unfinished": self.unfinished})

    def add(self, answer: Answered, slo: Slo) -> None:
        """Count an answer."""
        self.seconds.append(answer.seconds)
        self.tokens += answer.tokens
        self.good += slo.keeps(answer)
        self.between_s += answer.between_s
        if answer.first_token_s is not None:
            self.first_token_s.append(answer.first_token_s)
        if answer.per_token_s is not None:
            self.per_token_s.append(answer.per_token_s)

    def rate(self, answer: Answered, slo: Slo) -> None:
        """Count an answer in the rates."""
        self.rated.update(answers=1, tokens=answer.tokens, good=slo.keeps(answer))

    def as_message(self) -> dict[str, Any]:
        """Return it as another process can read it."""
        return {**vars(self), "errors": dict(self.errors), "rated": dict(self.rated)}

    def merge(self, other: Mapping[str, Any]) -> None:
        """Add another's message."""
        for name in ("seconds", "first_token_s", "between_s", "per_token_s"):
            getattr(self, name).extend(other[name])
        for name in ("sent", "tokens", "good", "refused"):
            setattr(self, name, getattr(self, name) + other[name])
        self.errors.update(other["errors"])
        self.rated.update(other["rated"])


class Outcomes:
    """The outcomes of all tasks since the warm-up; and how busy the load's own processes were."""

    def __init__(self, warm_up_s: float = 0.0, slo: Slo | None = None) -> None:
        self.by_task: defaultdict[str, Outcome] = defaultdict(Outcome)
        self.slo = slo or Slo()
        self._counts_from = time.monotonic() + warm_up_s
        self._ended: float | None = None
        self._cpu_at, self._cpu_started = time.monotonic(), time.process_time()
        self._busiest = 0.0  # of other processes

    def is_warm(self) -> bool:
        """Whether the warm-up is over: what is sent now counts."""
        return time.monotonic() >= self._counts_from

    def add(self, task: str, answer: Answered, *, is_of_warm_up: bool = False) -> None:
        """Count an answer to a task.

        Rates are of the answers that come between the warm-up and the end, whenever they were asked for: without those
        asked for in the warm-up a slow service would seem slower, and with those behind the end as fast as its queue is
        long. All other figures are of the requests sent in that time.
        """
        if self.is_warm() and self._ended is None:
            self.by_task[task].rate(answer, self.slo)
        if not is_of_warm_up:
            self.by_task[task].add(answer, self.slo)

    def end(self) -> None:
        """Stop the clock: what is still underway is waited for, but no longer asked."""
        self._ended = self._ended or time.monotonic()

    def seconds(self) -> float:
        """Return how long requests were counted, at least a moment."""
        return max(1e-9, (self._ended or time.monotonic()) - self._counts_from)

    def generator_cpu(self) -> float:
        """Return the share of one core that the busiest process used; near 1 it measures itself and not the service."""
        own = (time.process_time() - self._cpu_started) / max(1e-9, time.monotonic() - self._cpu_at)
        return max(own, self._busiest)

    def take_message(self) -> dict[str, Any]:
        """Return what was counted since the last message, for another process, and count anew."""
        counted = {task: outcome.as_message() for task, outcome in self.by_task.items()}
        self.by_task.clear()
        return {"tasks": counted, "cpu": self.generator_cpu()}

    def merge(self, message: Mapping[str, Any]) -> None:
        """Add another process's message."""
        for task, counted in message["tasks"].items():
            self.by_task[task].merge(counted)
        self._busiest = max(self._busiest, message["cpu"])

    def total(self) -> Outcome:
        """Return all tasks together."""
        total = Outcome()
        for outcome in self.by_task.values():
            total.merge(outcome.as_message())
        return total


@dataclass(frozen=True)
class Thresholds:
    """What may not be exceeded, and what must be reached (`good_ratio`); None: anything may."""

    error_ratio: float | None = 0.0
    refused_ratio: float | None = None
    latency_s: float | None = None
    first_token_s: float | None = None
    good_ratio: float | None = None

    def broken(self, outcomes: Outcomes) -> Iterator[str]:
        """Yield what was worse than it may be; that nothing was answered always is."""
        if not any(outcome.seconds for outcome in outcomes.by_task.values()):
            total = outcomes.total()
            yield f"nothing was answered: {total.sent} sent, {dict(total.failures)}, {total.refused} refused"
        for task, outcome in sorted(outcomes.by_task.items()):
            if outcome.sent and not outcome.seconds and (self.latency_s, self.first_token_s) != (None, None):
                yield f"{task}: none of {outcome.sent} was answered, so there is no latency"
            failures = outcome.failures
            errors = failures.total() / max(1, outcome.requests + outcome.unfinished)
            refused = outcome.refused / max(1, outcome.requests)
            good = outcome.good / max(1, outcome.sent)
            measured = {
                "errors": (errors, self.error_ratio, f"{errors:.2%}: {dict(failures)}"),
                "429s": (refused, self.refused_ratio, f"{refused:.2%}"),
                "p95 latency": (p95 := percentile(outcome.seconds, 95), self.latency_s, f"{p95:.2f} s"),
                "p95 first token": (p95 := percentile(outcome.first_token_s, 95), self.first_token_s, f"{p95:.2f} s"),
            }
            for name, (value, limit, text) in measured.items():
                if limit is not None and value > limit:
                    yield f"{task}: {name} {text}, allowed {limit:g}"
            if self.good_ratio is not None and outcome.sent and good < self.good_ratio:
                yield f"{task}: {good:.2%} kept the SLO, asked for {self.good_ratio:g}"


def percentile(seconds: list[float], percent: float) -> float:
    """Return a percentile by the nearest rank, 0 of none."""
    return sorted(seconds)[max(0, math.ceil(percent / 100 * len(seconds)) - 1)] if seconds else 0.0
