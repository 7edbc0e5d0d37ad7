"""Users of all tasks, and the one who replays a trace: each sends requests and counts what comes of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from gevent.pool import Group
from geventhttpclient.response import HTTPParseError
from locust import FastHttpUser, task
from locust.env import Environment

from loadtests import trace
from loadtests.inputs import Inputs
from loadtests.load_options import given
from loadtests.outcomes import Answered, Outcomes
from loadtests.sse import Stream

seeds = itertools.count(1)


@dataclass
class Run:
    """What all users of this process share, and those who begin and end the run."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    models: dict[str, str] = field(default_factory=dict)  # by task, of the service that is asked
    underway: Group = field(default_factory=Group)  # requests; those of the open loop nobody waits for but the end
    has_ended: bool = False
    ended_workers: set[str] = field(default_factory=set)  # of a master: whose last counts it has


run = Run()


def authorization(environment: Environment) -> dict[str, str]:
    """Return the header with the API key, if there is one."""
    key = given(environment).api_key
    return {"Authorization": f"Bearer {key}"} if key else {}


class Asker(FastHttpUser):
    """Sends requests, and counts what comes of them."""

    abstract = True
    network_timeout = 300.0  # longer than services take unless told otherwise, or their slowest answers would be errors
    concurrency = 10_000  # connections of one user; in open loop nothing but the service may make requests wait

    def on_start(self) -> None:
        """Take a seed that no user of another worker has."""
        self.headers = authorization(self.environment)
        worker = getattr(self.environment.runner, "worker_index", 0)
        self.inputs = Inputs(next(seeds) + 1_000_000 * worker)

    def request(self, kind: str, body: dict[str, Any], *, streams: bool, due_s: float | None = None) -> None:
        """Send one request, and count what comes of it; of one sent during the warm-up only the answer, in rates.

        Its time runs from `due_s` of `time.perf_counter()`, if it is given: a busy load generator sends it later.
        """
        is_of_warm_up = not run.outcomes.is_warm()
        counted = Outcomes() if is_of_warm_up else run.outcomes
        started = time.perf_counter() if due_s is None else due_s
        counted.by_task[kind].sent += 1
        with self.client.post(
            f"/models/{run.models[kind]}/{kind}",
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
            stream = self.read(answer, started) if streams else whole_answer(answer)
            if stream.error:
                counted.by_task[kind].errors[stream.error] += 1
                answer.failure(stream.error)
                return
        whole = answered(stream, time.perf_counter() - started)
        run.outcomes.add(kind, whole, is_of_warm_up=is_of_warm_up)

    def read(self, answer: Any, started: float) -> Stream:
        """Read a stream; one that breaks off has an error."""
        stream = Stream()
        try:
            stream.read(lines(answer.stream), started)
        except (OSError, HTTPParseError) as error:
            stream.error = type(error).__name__
        return stream


def whole_answer(answer: Any) -> Stream:
    """Return the usage of an answer in one piece; one that has none, as another program's, has an error."""
    try:
        return Stream(usage=answer.json()["usage"])
    except (ValueError, LookupError, TypeError) as error:
        return Stream(error=f"no answer of this service: {type(error).__name__}")


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

    def on_start(self) -> None:
        """In open loop wait for the time of the first request: users begin together, and their requests do not."""
        super().on_start()
        if self.is_open():
            gevent.sleep(self.wait_time())

    def wait_time(self) -> float:
        """Return the pause before the next request, in seconds; `--rate` is shared by all users that there may be."""
        options = given(self.environment)
        mean_s = options.rate_shared_by / options.rate if options.rate else options.pause
        return self.inputs.until_next(mean_s, time.perf_counter()) if self.is_open() else self.inputs.pause(mean_s)

    def is_open(self) -> bool:
        """Tell whether requests come at their own times, whether or not earlier ones were answered."""
        options = given(self.environment)
        return bool(options.rate) or options.arrivals == "open"

    @task
    def ask(self) -> None:
        """Ask once; in open loop without waiting for the answer."""
        body = getattr(self.inputs, self.kind)()
        if run.has_ended:
            return
        due_s = self.inputs.due_s if self.is_open() else None
        asked = run.underway.spawn(self.request, self.kind, body, streams=self.streams, due_s=due_s)
        if not self.is_open():
            asked.get()


class TraceUser(Asker):
    """Replays a trace: every request at its own time, whether or not earlier ones were answered."""

    kind = "trace"

    @task
    def replay(self) -> None:
        """Send all, and wait for the end."""
        options = given(self.environment)
        arrivals, started = trace.read(Path(options.trace)), time.perf_counter()
        for arrival in arrivals:
            due_s = started + arrival.at_s / options.trace_speed
            gevent.sleep(max(0.0, due_s - time.perf_counter()))
            if run.has_ended:
                break
            streams = arrival.task == "generate"
            run.underway.spawn(self.request, arrival.task, arrival.body, streams=streams, due_s=due_s)
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
