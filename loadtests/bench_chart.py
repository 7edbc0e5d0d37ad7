"""`python -m loadtests.bench_chart`: a picture of what `bench_engine` has found, and its table in Markdown.

Each file is one run, on one processor, and one panel. A bar is how many times as fast as the peer ours was, on a scale
on which twice as fast and half as fast are as far from level; of a latency it is the peer's over ours.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from loadtests.bench_engine import COLUMNS, WORKLOADS, Result, cells_of

COLOURS = ("#6b6b6b", "#2c7fb8", "#d95f0e", "#31a354", "#756bb1", "#c51b8a", "#a6761d")
TICKS = (0.25, 0.5, 1, 2, 4, 8, 16)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
PEERS = sorted({workload.peer for workload in WORKLOADS})
Run = dict[str, Any]  # as `bench_engine --json` writes it


def main() -> None:
    """Draw the picture, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_chart", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="files of bench_engine --json")
    parser.add_argument("--out", type=Path, help="the picture, as PNG or SVG")
    parser.add_argument(
        "--only", default=[""], nargs="+", metavar="WORKLOAD", help="those whose names contain one of these"
    )
    options = parser.parse_args()
    runs = [json.loads(path.read_text()) for path in options.runs]
    for run in runs:
        run["results"] = [each for each in run["results"] if any(part in each["workload"] for part in options.only)]
    for run in runs:
        print(f"{title(run)}\n\n{table(run)}\n")
    if options.out is not None:
        draw(runs, options.out)


def title(run: Run) -> str:
    """Return what a run was measured on, and of what."""
    about = run["about"]
    libraries = ", ".join(f"{name} {version}" for name, version in about["libraries"].items())
    steal = max((share for result in results(run) for share in result.steal), default=0.0)
    instructions = " ".join(about["instructions"])
    measured = f"{about['processor']} ({instructions}), {precision_of(run)}, at most {steal:.1%} taken by neighbours"
    return f"{measured}; commit {(about['commit'] or 'unknown')[:8]}, {libraries}"


def precision_of(run: Run) -> str:
    """Return what our packages were of, and their caches where these had 16 bits."""
    cache = ", cache of 16 bits" if run.get("kv_cache") == "float16" else ""
    return f"{run['precision']}{cache}"


def table(run: Run) -> str:
    """Return a run's results as lines of Markdown."""
    rows = [COLUMNS, *(cells_of(result, BY_NAME[result.workload]) for result in results(run))]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(COLUMNS)}", *lines[1:]])


def results(run: Run) -> list[Result]:
    """Return a run's results, those of workloads that there are no longer left out."""
    return [
        Result(**{**result, "steal": tuple(result["steal"])})
        for result in run["results"]
        if result["workload"] in BY_NAME
    ]


def times_as_fast(result: Result) -> float:
    """Return how many times as fast as the peer ours was."""
    return 1 / result.ratio if BY_NAME[result.workload].is_latency else result.ratio


def draw(runs: list[Run], out: Path) -> None:
    """Draw a panel a run, and in it a bar a row: those of one task together, each with its peer."""
    from matplotlib.figure import Figure

    places = places_of(runs)
    height = 0.9 + 0.19 * (1 + max(places.values()))  # inches
    figure = Figure(figsize=(3.5 + 4.5 * len(runs), height), layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for axes, run in zip(panels, runs, strict=True):
        _draw_panel(axes, run, places)
    tasks: dict[str, list[float]] = {}
    for name, place in places.items():
        tasks.setdefault(BY_NAME[name].task, []).append(place)
    panels[0].set_yticks([sum(each) / len(each) for each in tasks.values()], list(tasks), fontsize=8)
    panels[0].set_ylim(max(places.values()) + 0.7, -0.7)
    figure.savefig(out, dpi=90)


def places_of(runs: list[Run]) -> dict[str, float]:
    """Return how far below the top each row is, in bars: in the table's order, half a bar between tasks."""
    found = {result.workload for run in runs for result in results(run)}
    tasks = dict.fromkeys(workload.task for workload in WORKLOADS if workload.name in found)
    places: dict[str, float] = {}
    below = 0.0
    for task in tasks:
        for workload in WORKLOADS:
            if workload.task == task and workload.name in found:
                places[workload.name] = below
                below += 1
        below += 0.4
    return places


def _draw_panel(axes: Any, run: Run, places: dict[str, float]) -> None:
    for result in results(run):
        factor, place, peer = times_as_fast(result), places[result.workload], BY_NAME[result.workload].peer
        axes.barh(place, math.log2(factor), 0.85, color=COLOURS[PEERS.index(peer) % len(COLOURS)])
        axes.annotate(f" {factor:.2g}  {peer}", (max(0.0, math.log2(factor)), place), va="center", fontsize=7)
    axes.set_xticks([math.log2(tick) for tick in TICKS], [f"{tick:g} ×" for tick in TICKS], fontsize=8)
    lowest, highest = axes.get_xlim()
    axes.set_xlim(lowest, highest + 0.35 * (highest - lowest))  # room for the words behind the longest
    axes.axvline(0, color="black", linewidth=1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("times as fast as the peer", fontsize=8)
    axes.set_title(f"{run['about']['processor']}, {precision_of(run)}", fontsize=9)


if __name__ == "__main__":
    main()
