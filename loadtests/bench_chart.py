"""`python -m loadtests.bench_chart`: a picture of what `bench_engine` has found, and its table in Markdown.

Each file is one run, on one processor. A bar is how many times as fast as the peer ours was, on a scale on which twice
as fast and half as fast are as far from level; of a latency it is the peer's over ours.
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import cycle
from pathlib import Path
from typing import Any

from loadtests.bench_engine import COLUMNS, WORKLOADS, Result, cells_of

COLOURS = ("#2c7fb8", "#d95f0e", "#31a354")
BY_NAME = {workload.name: workload for workload in WORKLOADS}
Run = dict[str, Any]  # as `bench_engine --json` writes it


def main() -> None:
    """Draw the picture, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_chart", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="files of bench_engine --json")
    parser.add_argument("--out", type=Path, help="the picture, as PNG or SVG")
    options = parser.parse_args()
    runs = [json.loads(path.read_text()) for path in options.runs]
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
    measured = f"{about['processor']} ({instructions}), {run['precision']}, at most {steal:.1%} taken by neighbours"
    return f"{measured}; commit {(about['commit'] or 'unknown')[:8]}, {libraries}"


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
    """Draw a bar a workload and run."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(result.workload for run in runs for result in results(run)))
    figure = Figure(figsize=(9, 0.6 + 0.3 * len(names) * max(1, 0.7 * len(runs))), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(runs)
    for number, (run, colour) in enumerate(zip(runs, cycle(COLOURS), strict=False)):
        found = {result.workload: times_as_fast(result) for result in results(run)}
        places = [index + (number - (len(runs) - 1) / 2) * height for index, name in enumerate(names) if name in found]
        factors = [found[name] for name in names if name in found]
        label = f"{run['about']['processor']}, {run['precision']}"
        axes.barh(places, [math.log2(each) for each in factors], height, color=colour, label=label)
        for place, factor in zip(places, factors, strict=True):
            axes.annotate(f" {factor:.2g} ", (max(0.0, math.log2(factor)), place), va="center", fontsize=8)
    ticks = [0.5, 1, 2, 4, 8]
    axes.set_xticks([math.log2(tick) for tick in ticks], [f"{tick:g} ×" for tick in ticks])
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=1)
    axes.set_xlabel("times as fast as the peer")
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
