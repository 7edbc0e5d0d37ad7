"""Users of all tasks, each at the model's own address: `make load`, or `locust -f loadtests/locustfile.py`.

Closed loop: a user waits for its answer, pauses, and asks again. Open loop (`--rate`, or `--arrivals open`): requests
come at random times whether or not earlier ones were answered, as they do from a crowd; a slow service then has a
growing queue. `--trace` replays requests from a file at their own times. With `--master` and `--worker` the master adds
up what its workers count. At the end a table by task is printed; the exit status is 1 if a threshold is broken, which
any error does unless `--max-error-ratio` allows it, or if nothing was answered.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import gevent
from gevent.pool import Group
from geventhttpclient.response import HTTPParseError
from locust import FastHttpUser, LoadTestShape, events, task
from locust import log as locust_log
from locust.env import Environment
from locust.runners import WorkerRunner

from loadtests import load_options, trace
from loadtests.inputs import Inputs
from loadtests.load_report import as_json, summary
from loadtests.outcomes import Answered, Outcomes
from loadtests.shapes import users_at
from loadtests.sse import Stream

seeds = itertools.count(1)
outcomes = Outcomes()
models: dict[str, str] = {}  # by task, of the service that is asked
underway = Group()  # requests that nobody waits for: those of the open loop
has_ended = False

add_options = events.init_command_line_parser.add_listener(load_options.add)


def given(environment: Environment) -> Namespace:
    """Return the command line's options."""
    options: Namespace | None = environment.parsed_options
    assert options is not None, "bug: asked before locust has read them"
    return options


@events.init.add_listener
def choose_users(environment: Environment, **_: Any) -> None:
    """Leave out users of tasks that have no model, before a master shares them out among its workers."""
    replays = bool(given(environment).trace)
    environment.user_classes = [user for user in environment.user_classes if (user is TraceUser) == replays]
    if environment.host and not isinstance(environment.runner, WorkerRunner):
        find_models(environment)
        environment.user_classes = [
            user for user in environment.user_classes if replays or getattr(user, "kind", None) in models
        ]


def find_models(environment: Environment) -> None:
    """Ask the service for the first model of each task."""
    request = Request(f"{environment.host}/v1/models", headers=authorization(environment))
    with urlopen(request, timeout=30) as answer:
        cards = [card for card in json.load(answer)["data"] if card["image_size"] is None]
    models.update({card["task"]: card["id"] for card in reversed(cards)})


@events.test_start.add_listener
def begin(environment: Environment, **_: Any) -> None:
    """Find out which models are served, and count from here, or from the end of the warm-up."""
    global outcomes, has_ended  # one run, one count
    find_models(environment)
    options = given(environment)
    outcomes, has_ended = Outcomes(options.warm_up, load_options.slo(options)), False


def authorization(environment: Environment) -> dict[str, str]:
    """Return the header with the API key, if there is one."""
    key = given(environment).api_key
    return {"Authorization": f"Bearer {key}"} if key else {}


@events.test_stopping.add_listener
def wait_for_the_rest(environment: Environment, **_: Any) -> None:
    """Ask nothing more, and give what is underway in the open loop some time."""
    global has_ended  # noqa: PLW0603
    has_ended = True
    outcomes.end()
    underway.join(timeout=given(environment).patience)
    underway.kill()


@events.report_to_master.add_listener
def tell(client_id: str, data: dict[str, Any]) -> None:
    """Add what this worker has counted to its message."""
    data["outcomes"] = outcomes.take_message()


@events.worker_report.add_listener
def add_up(client_id: str, data: dict[str, Any]) -> None:
    """Add what a worker has counted."""
    outcomes.merge(data["outcomes"])


@events.quitting.add_listener
def finish(environment: Environment, **_: Any) -> None:
    """Print the table, write the report, and fail if a threshold is broken; locust's own failures stay failures."""
    runner, options = environment.runner, given(environment)
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
        return users_at(options.load, seconds, run_s, options.num_users or 1), options.spawn_rate or 10.0


class Asker(FastHttpUser):
    """Sends requests, and counts what comes of them."""

    abstract = True
    concurrency = 10_000  # connections of one user; in open loop nothing but the service may make requests wait

    def on_start(self) -> None:
        """Take a seed that no user of another worker has."""
        self.headers = authorization(self.environment)
        worker = getattr(self.environment.runner, "worker_index", 0)
        self.inputs = Inputs(next(seeds) + 1_000_000 * worker)

    def request(self, kind: str, body: dict[str, Any], *, streams: bool) -> None:
        """Send one request, and count what comes of it, unless it was sent during the warm-up."""
        counted = outcomes if outcomes.is_warm() else Outcomes()
        outcome, started = counted.by_task[kind], time.perf_counter()
        outcome.sent += 1
        with self.client.post(
            f"/models/{models[kind]}/{kind}",
            json={**body, "stream": True} if streams else body,
            headers=self.headers,
            name=kind,
            stream=streams,
            catch_response=True,
        ) as answer:
            if answer.status_code == 429:
                counted.by_task[kind].refused += 1
                answer.success()
                return
            if answer.status_code != 200:
                counted.by_task[kind].errors[str(answer.status_code)] += 1
                answer.failure(f"{answer.status_code}: {answer.text[:200] if answer.text else answer.error}")
                return
            stream = self.read(answer, started) if streams else Stream(usage=answer.json()["usage"])
            if stream.error:
                counted.by_task[kind].errors[stream.error] += 1
                answer.failure(stream.error)
                return
        counted.by_task[kind].add(answered(stream, time.perf_counter() - started), counted.slo)

    def read(self, answer: Any, started: float) -> Stream:
        """Read a stream; one that breaks off has an error."""
        stream = Stream()
        try:
            stream.read(lines(answer.stream), started)
        except (OSError, HTTPParseError) as error:
            stream.error = type(error).__name__
        return stream


def answered(stream: Stream, seconds: float) -> Answered:
    """Return what is counted of an answer; a stream's time per token is that after its first."""
    tokens, first_s = stream.usage["completion_tokens"], stream.first_s
    per_token_s = (seconds - first_s) / (tokens - 1) if first_s is not None and tokens > 1 else None
    counted = tokens or stream.usage["prompt_tokens"]
    return Answered(seconds, counted, first_s, tuple(stream.between_s), per_token_s)


def lines(stream: Any) -> Iterator[str]:
    """Yield a response's lines as they come."""
    while line := stream.readline(b"\n"):
        yield line.decode().rstrip("\r\n")


class TaskUser(Asker):
    """Somebody who asks for one task."""

    abstract = True
    kind: str
    streams = False
    weight = 1

    def wait_time(self) -> float:
        """Return the pause before the next request, in seconds; `--rate` is shared by all users that there may be."""
        options = given(self.environment)
        return self.inputs.pause((options.num_users or 1) / options.rate if options.rate else options.pause)

    @task
    def ask(self) -> None:
        """Ask once; in open loop without waiting for the answer."""
        body, options = getattr(self.inputs, self.kind)(), given(self.environment)
        if has_ended:
            return
        if options.rate or options.arrivals == "open":
            underway.add(gevent.spawn(self.request, self.kind, body, streams=self.streams))
        else:
            self.request(self.kind, body, streams=self.streams)


class TraceUser(Asker):
    """Replays a trace: every request at its own time, whether or not earlier ones were answered."""

    kind = "trace"

    @task
    def replay(self) -> None:
        """Send all, and wait for the end."""
        options, started = given(self.environment), time.monotonic()
        for arrival in trace.read(Path(options.trace)):
            gevent.sleep(max(0.0, started + arrival.at_s / options.trace_speed - time.monotonic()))
            if has_ended:
                break
            streams = arrival.task == "generate"
            underway.add(gevent.spawn(self.request, arrival.task, arrival.body, streams=streams))
        gevent.sleep(1e9)


class ClassifyUser(TaskUser):
    """Asks for the sentiment of texts."""

    kind = "classify"
    weight = 4


class EmbedUser(TaskUser):
    """Asks for the vectors of a few texts at a time."""

    kind = "embed"
    weight = 2


class GenerateUser(TaskUser):
    """Reads stories as they are written."""

    kind = "generate"
    streams = True
    weight = 2


class TranslateUser(TaskUser):
    """Asks for translations."""

    kind = "translate"
    weight = 2
