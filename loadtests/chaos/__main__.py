"""`python -m loadtests.chaos`: a Ray cluster on this machine, whose nodes come, go and die while polite users ask.

Its hosts are network namespaces, so it needs root, iproute2, and redis-server. Nodes come and go with the load on a
model that has half of a logical GPU and runs on the CPU; a node is killed, and one cut off; the head is killed, whose
state is in Redis; a model's version is replaced. Every answer is compared bit for bit with what is right. The exit
status is 1 if a verdict does not hold, and 2 if the run was not possible.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Collection, Iterator
from pathlib import Path

from rich.console import Console

from loadtests.chaos import report, scenarios
from loadtests.chaos.cluster import cluster
from loadtests.chaos.scenarios import WITH_GPUS, WORKERS, Plan
from loadtests.chaos.watch import Found
from loadtests.hostile.processes import make_keys
from loadtests.interrupts import end_as_by_ctrl_c

NAMES = ("nodes", "node", "power", "head", "model")


def main() -> None:
    """Run the scenarios, print the table, and exit with 1 if a verdict does not hold."""
    options = parse(sys.argv[1:])
    end_as_by_ctrl_c()
    console = Console(width=None if sys.stdout.isatty() else 150)
    found: list[Found] = []
    try:
        for each in run(options.only, Plan(options.seconds, options.roll_seconds, options.step_seconds, options.users)):
            found.append(each)
            console.print(report.table([each]))
            if options.plots:
                options.plots.mkdir(parents=True, exist_ok=True)
                report.plot(each, options.plots / f"{each.name.replace(' ', '-')}.svg")
            if options.json is not None:
                options.json.write_text(json.dumps(report.as_json(found), indent=1))
    except (RuntimeError, ValueError, OSError, EOFError) as error:
        print(f"chaos: {error or type(error).__name__}", *getattr(error, "__notes__", []), sep="\n", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0 if all(each.holds() for each in found) else 1)


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.chaos", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="scenarios; all, unless named")
    parser.add_argument("--seconds", type=float, default=100, help="of a scenario in which something dies")
    parser.add_argument("--roll-seconds", type=float, default=180, help="of the one in which a model is replaced")
    parser.add_argument(
        "--step-seconds", type=float, default=30, help="of each of seven steps of load on nodes that come"
    )
    parser.add_argument("--users", type=int, default=6, help="while something dies")
    parser.add_argument("--json", type=Path, help="file for everything that was found")
    parser.add_argument("--plots", type=Path, help="folder for a plot of each scenario")
    return parser.parse_args(arguments)


def run(names: Collection[str], plan: Plan) -> Iterator[Found]:
    """Yield what each scenario showed, in two clusters: one with nodes that come and go, and one whose parts die."""
    keys = make_keys("sides")
    if "nodes" in names:
        with cluster(WITH_GPUS, keys, survives=False) as small:
            yield asyncio.run(scenarios.nodes_come_and_go(small, plan))
    if {*names} - {"nodes"}:
        with cluster(WORKERS, keys, survives=True) as large:
            asking = asyncio.run(scenarios.prepare(large))
            if "node" in names:
                yield asyncio.run(scenarios.node_dies(large, asking, plan))
            if "power" in names:
                yield asyncio.run(scenarios.node_dies(large, asking, plan, unplugged=True))
            if "head" in names:
                yield asyncio.run(scenarios.head_dies(large, asking, plan))
            if "model" in names:
                yield asyncio.run(scenarios.model_changes(large, asking, plan))


if __name__ == "__main__":
    main()
