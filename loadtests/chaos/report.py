"""Scenarios as a table for people, as JSON for programs, and as plots over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from loadtests.chaos.watch import Found
from loadtests.hostile.report import WORDS
from loadtests.hostile.verdicts import answered
from loadtests.outcomes import percentile

WINDOW_S = 5.0  # of which each point of the plot is


def table(scenarios: Sequence[Found]) -> Table:
    """Return a line for each verdict."""
    drawn = Table(title="What a cluster survives", title_justify="left")
    for column in ("scenario", "what must hold", "holds", "found"):
        drawn.add_column(column, overflow="fold")
    for found in scenarios:
        for place, verdict in enumerate(found.verdicts):
            drawn.add_row(found.name if not place else "", verdict.name, WORDS[verdict.holds], verdict.found)
        drawn.add_section()
    return drawn


def as_json(scenarios: Sequence[Found]) -> list[dict[str, Any]]:
    """Return everything, so that runs can be compared."""
    return [{**asdict(found), "holds": found.holds()} for found in scenarios]


def over_time(found: Found) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the panels of a plot: their lines by name, as seconds from the start and values."""
    end = max(found.looks[-1].at, found.users[-1][0]) - found.started
    kinds = sorted({kind for look in found.looks for kind in look.nodes})
    states = ("RUNNING", "STARTING", "STOPPING")
    windows = [index * WINDOW_S for index in range(int(end / WINDOW_S) + 1)]
    in_window = {
        begin: [s for s in found.samples if begin <= s.at - found.started < begin + WINDOW_S] for begin in windows
    }
    return {
        "users": {"": [(0.0, 0), *((at - found.started, users) for at, users in found.users)]},
        "replicas": {
            state.lower(): [(look.at - found.started, look.states.get(state, 0)) for look in found.looks]
            for state in states
        },
        "nodes": {kind: [(look.at - found.started, look.nodes.get(kind, 0)) for look in found.looks] for kind in kinds},
        "p95 in s": {
            "": [(begin, percentile(answered(samples), 95)) for begin, samples in in_window.items() if samples]
        },
        "failed": {"": [(begin, sum(s.error is not None for s in samples)) for begin, samples in in_window.items()]},
    }


def plot(found: Found, path: Path) -> None:
    """Draw a scenario, one panel above the other."""
    from matplotlib.figure import Figure  # only where a plot is asked for

    panels = over_time(found)
    figure = Figure(figsize=(8, 9), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(len(panels), sharex=True), panels.items(), strict=True):
        for name, points in lines.items():
            axes.step([at for at, _ in points], [value for _, value in points], where="post", label=name)
        for event in found.events:
            axes.axvline(event.at - found.started, color="grey", linewidth=0.5, linestyle="--")
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if len(lines) > 1:
            axes.legend(loc="upper right")
    for event in found.events:
        figure.axes[0].annotate(event.what, (event.at - found.started, 0), rotation=90, fontsize=7, color="grey")
    figure.axes[-1].set_xlabel("seconds")
    figure.savefig(path)
