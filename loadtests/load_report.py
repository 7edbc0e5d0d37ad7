"""The outcomes of a load test as a table for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.machine import about
from loadtests.outcomes import PERCENTILES, Outcome, Outcomes, percentile

HEAD = (
    *("task", "req/s", "good/s", "tokens/s", "first token p50 / p95 / p99", "between tokens", "per token"),
    *("latency p50 / p95 / p99", "errors", "429s", "unfinished"),
)


def table(outcomes: Outcomes) -> str:
    """Return a line for each task, with the percentiles in milliseconds."""
    rows = [_row(task, outcome, outcomes) for task, outcome in sorted(outcomes.by_task.items())]
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (HEAD, *rows)
    ]
    return "\n".join([lines[0], "-|-".join("-" * width for width in widths), *lines[1:]])


def _row(task: str, outcome: Outcome, outcomes: Outcomes) -> tuple[str, ...]:
    answers, good, tokens = _rates(outcome, outcomes.seconds())
    return (
        task,
        f"{answers:.1f}",
        f"{good:.1f}" if outcomes.slo.is_set else "–",
        f"{tokens:.0f}",
        *(_percentiles(times) for times in (outcome.first_token_s, outcome.between_s, outcome.per_token_s)),
        _percentiles(outcome.seconds),
        *(str(count) for count in (outcome.errors.total(), outcome.refused, outcome.unfinished)),
    )


def _rates(outcome: Outcome, seconds: float) -> tuple[float, float, float]:
    """Return answers, good answers and tokens a second."""
    answers, good, tokens = (outcome.rated[name] / seconds for name in ("answers", "good", "tokens"))
    return answers, good, tokens


def _percentiles(seconds: list[float]) -> str:
    if not seconds:
        return "–"
    return " / ".join(f"{percentile(seconds, percent) * 1000:.0f}" for percent in PERCENTILES)


def summary(outcomes: Outcomes) -> str:
    """Return the table, and what it is worth."""
    cpu = outcomes.generator_cpu()
    remark = "" if cpu < 0.8 else "; it may have measured itself: run it on another machine, or as several processes"
    return f"{table(outcomes)}\n{outcomes.seconds():.0f} s; the load's own process used {cpu:.0%} of a core{remark}"


def as_json(outcomes: Outcomes, options: Mapping[str, Any], broken: Sequence[str]) -> dict[str, Any]:
    """Return everything that a later comparison needs: figures, options, commit, hardware."""
    return {
        "about": about(),
        "options": dict(options),
        "seconds": outcomes.seconds(),
        "generator_cpu": outcomes.generator_cpu(),
        "tasks": {task: _figures(outcome, outcomes) for task, outcome in sorted(outcomes.by_task.items())},
        "total": _figures(outcomes.total(), outcomes),
        "broken": list(broken),
    }


def _figures(outcome: Outcome, outcomes: Outcomes) -> dict[str, Any]:
    answers, good, tokens = _rates(outcome, outcomes.seconds())
    return {
        "sent": outcome.sent,
        "answered": len(outcome.seconds),
        "good": outcome.good if outcomes.slo.is_set else None,
        "errors": dict(outcome.errors),
        "refused": outcome.refused,
        "unfinished": outcome.unfinished,
        "answered_per_s": answers,
        "good_per_s": good if outcomes.slo.is_set else None,
        "tokens_per_s": tokens,
        "latency_s": _spread(outcome.seconds),
        "first_token_s": _spread(outcome.first_token_s),
        "between_tokens_s": _spread(outcome.between_s),
        "per_token_s": _spread(outcome.per_token_s),
    }


def _spread(seconds: list[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    spread = {f"p{percent}": percentile(seconds, percent) for percent in PERCENTILES}
    return {"mean": sum(seconds) / len(seconds), **spread}
