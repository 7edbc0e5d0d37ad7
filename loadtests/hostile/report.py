"""A run as tables for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from loadtests.hostile.attacks import counted
from loadtests.hostile.phases import Phase, Run
from loadtests.hostile.polite import Sample
from loadtests.hostile.verdicts import answered
from loadtests.outcomes import PERCENTILES, percentile

WORDS = {True: "yes", False: "NO", None: "–"}


def tables(run: Run) -> list[Table]:
    """Return the tables: polite users, hostile kinds, probes, verdicts."""
    return [polite_table(run), hostile_table(run), probe_table(run), verdict_table(run)]


def polite_table(run: Run) -> Table:
    """Return a line for each user, and one for all of them."""
    seconds = f"{run.alone.seconds:.0f} s alone, {run.beside.seconds:.0f} s beside hostile clients"
    table = _table(
        f"Polite users, {seconds}; milliseconds",
        "user",
        *("requests", "errors", "wrong", "p50 / p95 / p99 alone"),
        *("requests", "errors", "wrong", "p50 / p95 / p99 beside", "p99 ratio"),
    )
    for name in [*dict.fromkeys(sample.user for sample in run.alone.samples), None]:
        alone, beside = (_of(phase.samples, name) for phase in (run.alone, run.beside))
        before, after = (percentile(answered(samples), 99) for samples in (alone, beside))
        ratio = f"{after / before:.1f}" if before else "–"
        table.add_row(name or "all", *_cells(alone), *_cells(beside), ratio, style="bold" if name is None else None)
    return table


def _of(samples: Sequence[Sample], user: str | None) -> list[Sample]:
    return [sample for sample in samples if user in {None, sample.user}]


def _cells(samples: Sequence[Sample]) -> list[str]:
    seconds = answered(samples)
    times = " / ".join(f"{percentile(seconds, percent) * 1000:.0f}" for percent in PERCENTILES)
    errors = sum(sample.error is not None for sample in samples)
    wrong = sum(sample.is_wrong for sample in samples)
    return [str(len(samples)), str(errors), str(wrong), times]


def hostile_table(run: Run) -> Table:
    """Return a line for each kind: what came of it, beside what should."""
    table = _table("Hostile clients", "kind", "sent", "should be (or 429)", "was")
    for kind in run.kinds:
        outcomes = counted(run.tally[kind.name])
        was = ", ".join(f"{outcome}: {count}" for outcome, count in outcomes.most_common())
        table.add_row(kind.name, str(outcomes.total()), kind.expected.replace(" ", ", "), was)
    return table


def probe_table(run: Run) -> Table:
    """Return how long each model's health took to answer, which stands in for its event loop's stalls.

    And how late this process itself was, which is in all these times.
    """
    table = _table(
        "/models/NAME/health, asked every 100 ms; milliseconds",
        *("model", "p99 alone", "longest alone", "p99 beside", "longest beside", "failed"),
    )
    for model in run.beside.probes:
        alone, beside = (phase.probes[model].seconds for phase in (run.alone, run.beside))
        times = [f"{percentile(of, percent) * 1000:.0f}" for of in (alone, beside) for percent in (99, 100)]
        table.add_row(model, *times, str(run.beside.probes[model].failures))
    late = run.alone.late, run.beside.late
    times = [f"{percentile(of, percent) * 1000:.0f}" for of in late for percent in (99, 100)]
    table.add_row("this load itself, late by", *times, "–", style="bold")
    return table


def verdict_table(run: Run) -> Table:
    """Return what must hold, and whether it does."""
    table = _table(f"Verdicts; {cpu(run)}", "what must hold", "holds", "found")
    for verdict in run.verdicts:
        table.add_row(verdict.name, WORDS[verdict.holds], verdict.found)
    return table


def cpu(run: Run) -> str:
    """Say how much of a core the load itself used."""
    return f"this load itself used {run.alone.cpu:.0%} of a core alone, {run.beside.cpu:.0%} beside hostile clients"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def as_json(run: Run) -> dict[str, Any]:
    """Return everything, so that runs can be compared."""
    return {
        "plan": asdict(run.plan),
        "holds": holds(run),
        "verdicts": [asdict(verdict) for verdict in run.verdicts],
        "alone": _phase(run.alone),
        "beside": _phase(run.beside),
        "hostile": {name: dict(counted(outcomes)) for name, outcomes in run.tally.items()},
        "kills": [asdict(kill) for kill in run.kills],
        "before": [asdict(usage) for usage in run.before],
        "after": [asdict(usage) for usage in run.after],
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "seconds": phase.seconds,
        "cpu": phase.cpu,
        "late": {"p99": percentile(phase.late, 99), "longest": max(phase.late, default=None)},
        "samples": [asdict(sample) for sample in phase.samples],
        "probes": {
            model: {
                "p99": percentile(probe.seconds, 99),
                "longest": max(probe.seconds, default=None),
                "failures": probe.failures,
            }
            for model, probe in phase.probes.items()
        },
    }


def holds(run: Run) -> bool:
    """Whether every verdict that could be reached holds."""
    return all(verdict.holds is not False for verdict in run.verdicts)
