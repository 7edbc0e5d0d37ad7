"""Users of all tasks, each at the model's own address: `make load`, or `locust -f loadtests/locustfile.py`.

Closed loop: a user waits for its answer, pauses, and asks again. Open loop (`--arrivals open`): requests come at random
times whether or not earlier ones were answered, as they do from a crowd; a slow service then has a growing queue. At
the end a table by task is printed; `--max-…` thresholds decide the exit status.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import gevent
from gevent.pool import Group
from geventhttpclient.response import HTTPParseError
from locust import FastHttpUser, LoadTestShape, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from loadtests.inputs import Inputs
from loadtests.outcomes import Outcomes, Thresholds
from loadtests.shapes import SHAPES, users_at
from loadtests.sse import Stream

seeds = itertools.count(1)
outcomes = Outcomes()
models: dict[str, str] = {}  # by task, of the service that is asked


@events.init_command_line_parser.add_listener
def add_options(parser: LocustArgumentParser) -> None:
    """Add what this load test can be told."""
    group = parser.add_argument_group("Trifold")
    group.add_argument("--load", choices=sorted(SHAPES), default="constant", help="number of users over the run time")
    group.add_argument("--arrivals", choices=["closed", "open"], default="closed", help="of requests")
    group.add_argument("--pause", type=float, default=1.0, help="mean seconds between a user's requests")
    group.add_argument("--api-key", default="", env_var="LOAD_API_KEY", help="of the service")
    for name, help_text in (
        ("error-ratio", "share of requests that may fail"),
        ("refused-ratio", "share of requests that may be answered with 429"),
        ("latency", "seconds that the p95 of whole answers may take"),
        ("first-token", "seconds that the p95 of first tokens may take"),
    ):
        group.add_argument(f"--max-{name}", type=float, default=None, help=help_text)


def given(environment: Environment) -> Namespace:
    """Return the command line's options."""
    options: Namespace | None = environment.parsed_options
    assert options is not None, "bug: asked before locust has read them"
    return options


@events.test_start.add_listener
def begin(environment: Environment, **_: Any) -> None:
    """Find out which models are served, leave out users of tasks that have none, and count from here."""
    global outcomes  # noqa: PLW0603  # one run, one count
    request = Request(f"{environment.host}/v1/models", headers=authorization(environment))
    with urlopen(request, timeout=30) as answer:
        cards = [card for card in json.load(answer)["data"] if card["image_size"] is None]
    models.update({card["task"]: card["id"] for card in reversed(cards)})  # the first of several
    environment.user_classes = [user for user in environment.user_classes if getattr(user, "kind", None) in models]
    outcomes = Outcomes()


def authorization(environment: Environment) -> dict[str, str]:
    """Return the header with the API key, if there is one."""
    key = given(environment).api_key
    return {"Authorization": f"Bearer {key}"} if key else {}


@events.quitting.add_listener
def finish(environment: Environment, **_: Any) -> None:
    """Print the table, and fail if a threshold is broken."""
    options = given(environment)
    limits = Thresholds(
        options.max_error_ratio, options.max_refused_ratio, options.max_latency, options.max_first_token
    )
    broken = list(outcomes.broken_thresholds(limits))
    sys.stdout.write("\n".join(["", outcomes.summary(), *broken, ""]))
    environment.process_exit_code = 1 if broken else 0


class Shape(LoadTestShape):
    """As many users as `--load` says, up to `--users`, for `--run-time`."""

    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        """Return the users there should be now, and how many may start in a second."""
        assert self.runner is not None
        options = given(self.runner.environment)
        seconds, run_s = self.get_run_time(), float(options.run_time or 120)
        if seconds >= run_s:
            return None
        return users_at(options.load, seconds, run_s, options.num_users or 1), options.spawn_rate or 10.0


class TaskUser(FastHttpUser):
    """Somebody who asks for one task."""

    abstract = True
    kind: str
    streams = False
    weight = 1
    concurrency = 10_000  # connections of one user; in open loop nothing but the service may make requests wait

    def on_start(self) -> None:
        """Take a seed."""
        self.headers = authorization(self.environment)
        self.inputs = Inputs(next(seeds))
        self.underway = Group()

    def on_stop(self) -> None:
        """Leave what is underway."""
        self.underway.kill()

    def wait_time(self) -> float:
        """Return the pause before the next request, in seconds."""
        return self.inputs.pause(given(self.environment).pause)

    @task
    def ask(self) -> None:
        """Ask once; in open loop without waiting for the answer."""
        body = getattr(self.inputs, self.kind)()
        if given(self.environment).arrivals == "open":
            self.underway.add(gevent.spawn(self.request, body))
        else:
            self.request(body)

    def request(self, body: dict[str, Any]) -> None:
        """Send one request, and count what comes of it."""
        outcome, started = outcomes.by_task[self.kind], time.perf_counter()
        url = f"/models/{models[self.kind]}/{self.kind}"
        with self.client.post(
            url,
            json={**body, "stream": True} if self.streams else body,
            headers=self.headers,
            name=self.kind,
            stream=self.streams,
            catch_response=True,
        ) as answer:
            if answer.status_code == 429:
                outcome.refused += 1
                answer.success()
                return
            if answer.status_code != 200:
                outcome.errors[str(answer.status_code)] += 1
                answer.failure(f"{answer.status_code}: {answer.text[:200] if answer.text else answer.error}")
                return
            usage = self.read(answer, started) if self.streams else answer.json()["usage"]
            if usage is None:
                return
        outcome.seconds.append(time.perf_counter() - started)
        outcome.tokens += usage["completion_tokens"] or usage["prompt_tokens"]

    def read(self, answer: Any, started: float) -> dict[str, int] | None:
        """Read a stream, and report its times as entries of their own; None if it broke off."""
        stream = Stream()
        try:
            stream.read(lines(answer.stream), started)
        except (OSError, HTTPParseError) as error:
            stream.error = type(error).__name__
        if stream.error:
            outcomes.by_task[self.kind].errors[stream.error] += 1
            answer.failure(stream.error)
            return None
        assert stream.first_s is not None
        outcomes.by_task[self.kind].first_token_s.append(stream.first_s)
        self.report("first token", stream.first_s * 1000)
        for seconds in stream.between_s:
            self.report("between pieces", seconds * 1000)
        tokens = stream.usage["completion_tokens"]
        self.report("tokens/s", tokens / (time.perf_counter() - started))
        return stream.usage

    def report(self, what: str, value: float) -> None:
        """Add an entry to locust's statistics and reports; milliseconds, but for tokens/s."""
        self.environment.events.request.fire(
            request_type=what, name=self.kind, response_time=value, response_length=0, exception=None, context={}
        )


def lines(stream: Any) -> Iterator[str]:
    """Yield a response's lines as they come."""
    while line := stream.readline(b"\n"):
        yield line.decode().rstrip("\r\n")


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
