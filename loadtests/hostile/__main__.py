"""`python -m loadtests.hostile`: eight polite users of all tasks, alone and then beside sixteen hostile clients.

It starts the service itself, with the bundled models on a free port of 127.0.0.1, kills one of its replicas every
minute, and ends it. The answers of the polite users are compared bit for bit with those given alone. The exit status is
1 if they were wrong, failed (but for the two seconds after a kill) or were more than three times as slow (p99), or if
the service afterwards holds more memory, slots or file descriptors than before; it is 2 if the run was not possible.
Before is a steady state, which the largest of ordinary requests have brought about (`loadtests.hostile.warmup`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console

from loadtests.hostile.phases import Plan, Run, run
from loadtests.hostile.processes import STRANGER, Keys, Service, make_keys, started
from loadtests.hostile.report import as_json, holds, tables
from loadtests.hostile.wire import loopback
from loadtests.interrupts import end_as_by_ctrl_c


def main() -> None:
    """Run everything, print the tables, and exit with 1 if a verdict does not hold."""
    options = parse(sys.argv[1:])
    end_as_by_ctrl_c()
    plan = Plan(options.seconds, options.baseline_seconds, options.settle_seconds, options.kill_every, options.seed)
    try:
        with service_of(options) as (service, keys):
            found = asyncio.run(run(service, keys, plan))
    except (RuntimeError, ValueError, OSError, EOFError) as error:
        print(f"hostile: {error or type(error).__name__}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    show(found, options.json)
    sys.exit(0 if holds(found) else 1)


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="beside the hostile clients")
    parser.add_argument("--baseline-seconds", type=float, default=45, help="of the polite users alone")
    parser.add_argument("--settle-seconds", type=float, default=120, help="at most, until all is as before")
    parser.add_argument("--kill-every", type=float, default=60, help="seconds between kills of a replica; 0: none")
    parser.add_argument("--seed", type=int, default=0, help="of what the hostile clients do")
    parser.add_argument("--threads", type=int, default=1, help="of each model, as there are more models than cores")
    parser.add_argument(
        "--keys",
        choices=["sides", "each", "none"],
        default="sides",
        help="API keys: one for the polite users and one for the hostile clients, one for each of them, or none",
    )
    parser.add_argument(
        "--hostile-limits",
        action="store_true",
        help="give each hostile key the limits that an operator gives a stranger: "
        + ", ".join(f"{name} {limit}" for name, limit in STRANGER.items()),
    )
    parser.add_argument("--host", help="a service that runs already, on this machine: nothing of it is killed")
    parser.add_argument("--pid", type=int, help="its process, to look at its memory and files")
    parser.add_argument("--polite-key", help="an API key of the service at --host")
    parser.add_argument("--hostile-key", help="another one")
    parser.add_argument("--json", type=Path, help="file for everything that was found")
    options = parser.parse_args(arguments)
    if options.hostile_limits and (options.keys == "none" or options.host):
        parser.error("--hostile-limits goes with keys that are made here: without --host, and not with --keys none")
    return options


@contextmanager
def service_of(options: Namespace) -> Iterator[tuple[Service, Keys]]:
    """Yield the service that is attacked, and the keys of both sides; raises `ValueError` for another machine's."""
    if options.host is None:
        keys = make_keys(options.keys, STRANGER if options.hostile_limits else None)
        with started(keys, options.threads) as service:
            yield service, keys
    else:
        process = psutil.Process(options.pid) if options.pid else None
        yield Service(loopback(options.host), process), Keys([options.polite_key], [options.hostile_key])


def show(found: Run, path: Path | None) -> None:
    """Print the tables, and write the file."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(*tables(found), sep="\n")
    if path is not None:
        path.write_text(json.dumps(as_json(found), indent=1))


if __name__ == "__main__":
    main()
