"""Users of all tasks, each at the model's own address: `make load`, or `locust -f loadtests/locustfile.py`.

Closed loop: a user waits for its answer, pauses, and asks again. Open loop (`--rate`, or `--arrivals open`): requests
come at random times whether or not earlier ones were answered, as they do from a crowd; a slow service then has a
growing queue. `--trace` replays requests from a file at their own times. With `--master` and `--worker` the master adds
up what its workers count. At the end a table by task is printed; the exit status is 1 if a threshold is broken, which
any error does unless `--max-error-ratio` allows it, and so does any request without an answer `--patience` seconds
after the end; or if nothing was answered, or the service does not tell its models.
"""

from __future__ import annotations

import json
import sys
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import gevent
from locust import LoadTestShape, events
from locust import log as locust_log
from locust.env import Environment
from locust.rpc import Message
from locust.runners import MasterRunner, WorkerRunner

from loadtests import load_options, trace
from loadtests.load_options import given
from loadtests.load_report import as_json, summary
from loadtests.load_users import (
    ClassifyUser,
    EmbedUser,
    GenerateUser,
    TraceUser,
    TranslateUser,
    authorization,
    run,
)
from loadtests.outcomes import Outcomes
from loadtests.shapes import users_at

__all__ = ["ClassifyUser", "EmbedUser", "GenerateUser", "Shape", "TraceUser", "TranslateUser"]  # what locust looks for

END, ENDED = "end", "ended"  # messages: a master's that the time is over, and a worker's last counts
MESSAGES_S = 5.0  # for both of them, beside the workers' patience

add_options = events.init_command_line_parser.add_listener(load_options.add)


@events.init.add_listener
def choose_users(environment: Environment, **_: Any) -> None:
    """Leave out users of tasks that have no model, before a master shares them out among its workers."""
    replays = bool(given(environment).trace)
    environment.user_classes = [user for user in environment.user_classes if (user is TraceUser) == replays]
    if environment.host and not isinstance(environment.runner, WorkerRunner):
        find_models(environment)
        environment.user_classes = [
            user for user in environment.user_classes if replays or getattr(user, "kind", None) in run.models
        ]
        if not environment.user_classes:
            sys.exit(f"{environment.host} serves no model of these users' tasks")


@events.init.add_listener
def listen(environment: Environment, **_: Any) -> None:
    """Let a worker hear that the time is over, and its master what the worker has counted until the last answer."""
    if isinstance(environment.runner, WorkerRunner):
        environment.runner.register_message(END, end_and_tell, concurrent=True)  # it waits, and heartbeats do not
    elif isinstance(environment.runner, MasterRunner):
        environment.runner.register_message(ENDED, add_last)


def find_models(environment: Environment) -> None:
    """Ask the service for the first model of each task; where it does not tell them, end this program with a line."""
    address = f"{environment.host}/v1/models"
    try:
        with urlopen(Request(address, headers=authorization(environment)), timeout=30) as answer:
            cards = [card for card in json.load(answer)["data"] if card["image_size"] is None]
        run.models.update({card["task"]: card["id"] for card in reversed(cards)})
    except HTTPError as error:
        advice = "; give --api-key or LOAD_API_KEY" if error.code in {401, 403} else ""
        sys.exit(f"{address}: {error.code}{advice}")
    except (OSError, HTTPException) as error:
        sys.exit(f"{address} does not answer ({getattr(error, 'reason', error)}); start the service")
    except (ValueError, LookupError, TypeError) as error:
        sys.exit(f"{address}: no answer of this service: {type(error).__name__}: {error}")


@events.test_start.add_listener
def begin(environment: Environment, **_: Any) -> None:
    """Find out which models are served, and count from here, or from the end of the warm-up."""
    find_models(environment)
    options = given(environment)
    if not isinstance(environment.runner, WorkerRunner):
        options.rate_shared_by = options.num_users or 1  # workers are sent all options but Locust's own
    run.outcomes, run.has_ended = Outcomes(options.warm_up, load_options.slo(options)), False
    run.ended_workers.clear()


@events.test_stopping.add_listener
def wait_for_the_rest(environment: Environment, **_: Any) -> None:
    """Ask nothing more, and give what is underway some time: what has no answer then is a failure."""
    run.has_ended = True
    run.outcomes.end()
    patience_s = given(environment).patience
    if isinstance(environment.runner, MasterRunner):
        wait_for_workers(environment.runner, patience_s + MESSAGES_S)
    else:
        run.underway.join(timeout=patience_s)
        run.underway.kill()


def wait_for_workers(master: MasterRunner, seconds: float) -> None:
    """End the workers' load, and wait for the last counts of all that are there: Locust itself waits half a second."""
    master.send_message(END)
    until, clients = time.monotonic() + seconds, master.clients
    while time.monotonic() < until:
        present = {worker.id for worker in (*clients.ready, *clients.spawning, *clients.running)}
        if present <= run.ended_workers:
            break
        gevent.sleep(0.05)


def end_and_tell(environment: Environment, msg: Message) -> None:
    """Wait for the rest as a worker, and tell the master."""
    assert environment.runner is not None, "bug: Locust's messages come by a runner"
    wait_for_the_rest(environment)
    environment.runner.send_message(ENDED, run.outcomes.take_message())


def add_last(environment: Environment, msg: Message) -> None:
    """Add the last that a worker has counted."""
    run.outcomes.merge(msg.data)
    run.ended_workers.add(msg.node_id)


@events.report_to_master.add_listener
def tell(client_id: str, data: dict[str, Any]) -> None:
    """Add what this worker has counted to its message."""
    data["outcomes"] = run.outcomes.take_message()


@events.worker_report.add_listener
def add_up(client_id: str, data: dict[str, Any]) -> None:
    """Add what a worker has counted."""
    run.outcomes.merge(data["outcomes"])


@events.quitting.add_listener
def finish(environment: Environment, **_: Any) -> None:
    """Print the table, write the report, and fail if a threshold is broken; locust's own failures stay failures."""
    runner, options, outcomes = environment.runner, given(environment), run.outcomes
    if isinstance(runner, WorkerRunner):
        return  # its master judges
    broken = list(load_options.thresholds(options).broken(outcomes))
    sys.stdout.write("\n".join(["", summary(outcomes), *broken, ""]))
    if options.report:
        told = {name: value for name, value in vars(options).items() if name in load_options.TOLD}
        Path(options.report).write_text(json.dumps(as_json(outcomes, told, broken), indent=1) + "\n")
    if broken:
        environment.process_exit_code = 1
    elif runner is not None and not runner.exceptions and not locust_log.unhandled_greenlet_exception:
        environment.process_exit_code = 0  # what failed was allowed to


class Shape(LoadTestShape):
    """As many users as `--load` says, up to `--users`, for `--run-time`; one for a trace, until its end."""

    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        """Return the users there should be now, and how many may start in a second."""
        assert self.runner is not None
        options = given(self.runner.environment)
        seconds = self.get_run_time()
        if options.trace:
            end_s = max(arrival.at_s for arrival in trace.read(Path(options.trace))) / options.trace_speed
            return (1, 1.0) if seconds < (options.run_time or end_s + 1) else None
        run_s = float(options.run_time or 120)
        if seconds >= run_s:
            return None
        users = users_at(options.load, seconds, run_s, options.num_users or 1)
        return users, users if options.rate else options.spawn_rate or 1.0  # a rate is to be kept from the start
