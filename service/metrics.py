"""All metrics, declared once, and the page that Prometheus scrapes.

A replica is one process among several on a node, and a load balancer before them would ask a random one. So each
process keeps its numbers in files of one directory of the node (prometheus-client's multiprocess mode), and whoever is
asked on that node adds them all up: the service's own address, and the node's metrics port (`metrics_port.py`).

Labels are few and bounded: model, task, code, phase, reason, route, and client, which is the name of an API key. Never
a prompt, a key or an id.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
    values,
)

from model.package import Manifest
from service.errors import DeadlineExceeded, InternalError, NotReady, ServerOverloaded
from service.metrics_engine import EngineMetrics
from service.metrics_files import AllocatedDict, NodeCollector, process_name
from service.metrics_process import build_info

logger = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_LATEST
STATE_S = 1.0  # how often the present state of the engines goes into the files
FRESH_S = 1.0  # how long what was read of a node is shown before its files are read again
PRESENT = ("gauge_livesum", "counter")  # the files of how things are now, and of counts; not of histograms

# Of requests; the objectives of `deploy/monitoring/rules.yml` are among them, or they could not be counted.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
STEP_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = tuple(2**power for power in range(11))  # up to the most slots that a model may have
TOKENS = tuple(2**power for power in range(18))  # up to the longest contexts that there are
BUILD = ("version", "python", "onnxruntime", "ray")
FAILURES = tuple(str(error.status) for error in (InternalError, NotReady, DeadlineExceeded))
INFO = ("task", "precision", "family", "application")
RATIOS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75)

Value = TypeVar("Value")


class Reading(NamedTuple):
    """Metrics, and when they were read, in Unix time."""

    at: float
    metrics: list[Metric]


class Metrics:
    """The metrics of this process; with a directory, together with those of the node's other processes."""

    def __init__(self, directory: Path | None = None, seconds: Sequence[float] = SECONDS) -> None:
        self._directory, self._seconds = directory, seconds
        # A word for the node, or for the process if it counts alone; it gives nobody its name.
        where = f"{socket.gethostname()} {directory or os.getpid()}"
        self.node = hashlib.sha256(where.encode()).hexdigest()[:8]
        self.models: set[str] = set()  # of this process, which share its memory
        self._page, self._present = _Shared(self._read_page), _Shared(self._read_present)
        self._registry = CollectorRegistry()
        # The library chooses when it is first imported, which Ray may have done before this process knew where.
        if directory is None:
            values.ValueClass = values.MutexValue
        else:
            directory.mkdir(parents=True, exist_ok=True)
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
            values.MmapedDict = AllocatedDict  # type: ignore[attr-defined]  # which it makes all its files by
            values.ValueClass = values.MultiProcessValue(process_name)
        self._declare()
        self.build.labels(**build_info()).set(1)
        self._engines: WeakSet[EngineMetrics] = WeakSet()
        self._timer: threading.Thread | None = None

    def _declare(self) -> None:
        model, task = ["model"], ["model", "task"]
        self.requests = self._counter("requests", "Answered requests, by HTTP status.", [*task, "code"])
        self.request_seconds = self._histogram(
            "request_seconds", "From a request's arrival to its last byte, of all but 429.", task
        )
        self.probes_failed = self._counter("probes_failed", "Probes that were told that it is not ready.", [])
        self.in_progress = self._gauge("requests_in_progress", "Requests that have begun, by their route.", ["route"])
        self.client_requests = self._counter(
            "client_requests", "Answered requests by the name of their API key and HTTP status.", ["client", "code"]
        )
        self.client_tokens = self._counter("client_tokens", "Tokens charged, by the API key's name.", ["client"])
        self.rejections = self._counter("rejections", "Requests refused or failed, by error code.", [*model, "reason"])
        self.cancellations = self._counter("cancellations", "Requests whose client left before the end.", model)
        self.queue_seconds = self._histogram("queue_seconds", "From arrival in the queue to admission.", model)
        self.first_token_seconds = self._histogram(
            "time_to_first_token_seconds", "From arrival in the queue to the first token.", model
        )
        self.inter_token_seconds = self._histogram(
            "inter_token_seconds", "From a sequence's token to its next.", model, STEP_SECONDS
        )
        self.token_seconds = self._histogram(
            "time_per_output_token_seconds", "A sequence's mean time from a token to its next.", model, STEP_SECONDS
        )
        self.prompt_length = self._histogram(
            "prompt_length_tokens", "Tokens of an admitted prompt, source or text.", model, TOKENS
        )
        self.output_length = self._histogram("output_length_tokens", "Tokens decoded for a sequence.", model, TOKENS)
        self.finished = self._counter("finished_sequences", "Sequences that have ended.", [*model, "reason"])
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of admitted prompts, sources and texts.", model)
        self.generated_tokens = self._counter("generated_tokens", "Tokens decoded.", model)
        self.drafted_tokens = self._counter("draft_tokens", "Tokens of drafts that were computed.", model)
        self.accepted_drafts = self._counter("accepted_draft_tokens", "Tokens of drafts that came.", model)
        self.running = self._gauge("sequences_running", "Sequences in the running batch.", model)
        self.waiting = self._gauge("sequences_waiting", "Choices, beams, sentences and inputs that wait.", model)
        self.queued_tokens = self._gauge("queued_tokens", "Tokens that wait to be computed.", model)
        self.slots = self._gauge("kv_slots", "Rows of the KV cache.", model)
        self.slots_used = self._gauge("kv_slots_used", "Rows of the KV cache held or promised.", model)
        self.kv_bytes = self._gauge("kv_bytes", "Memory that the KV cache takes.", model)
        self.kv_capacity = self._gauge("kv_capacity_bytes", "Memory that the KV cache may take.", model)
        self.batch_rows = self._histogram("batch_rows", "Rows of a step.", [*model, "phase"], ROWS)
        self.batch_tokens = self._histogram(
            "batch_tokens", "Tokens of a step, without padding.", [*model, "phase"], TOKENS
        )
        self.padding_ratio = self._histogram(
            "padding_ratio", "Share of a step's computed tokens that were padding.", [*model, "phase"], RATIOS
        )
        self.step_seconds = self._histogram("step_seconds", "One run of a graph.", [*model, "phase"], STEP_SECONDS)
        self.prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up.", model)
        self.prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found.", model)
        self.last_step = self._gauge(
            "engine_last_step_timestamp_seconds", "When the newest step ended, in Unix time.", model, "livemin"
        )
        self.stalled = self._gauge(
            "engine_stalled_seconds", "For how long there has been work without a step's end.", model, "livemax"
        )
        self.build = self._gauge("build_info", "1, with the versions of what runs.", BUILD, "livemax")
        self.info = self._gauge("model_info", "1 for each model served.", [*model, *INFO], "livemax")
        self.replicas = self._gauge("replicas", "Processes of the node that serve a model.", model)
        self.load_seconds = self._gauge("model_load_seconds", "Opening a package and warming it up.", model, "livemax")
        self.resident = self._gauge("process_resident_memory_bytes", "Memory of a model's processes.", model)
        self.heap = self._gauge("process_heap_bytes", "Memory a model's processes have allocated.", model)

    def _counter(self, name: str, documentation: str, labels: Sequence[str]) -> Counter:
        return Counter(f"trifold_{name}", documentation, labels, registry=self._registry)

    def _gauge(self, name: str, documentation: str, labels: Sequence[str], mode: Any = "livesum") -> Gauge:
        return Gauge(f"trifold_{name}", documentation, labels, registry=self._registry, multiprocess_mode=mode)

    def _histogram(
        self, name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float] | None = None
    ) -> Histogram:
        bounds = self._seconds if buckets is None else buckets
        return Histogram(f"trifold_{name}", documentation, labels, registry=self._registry, buckets=bounds)

    def exposition(self) -> bytes:
        """Return the page, in Prometheus' text format: of all processes of this node, a second old at most."""
        return generate_latest(self._registry) if self._directory is None else self._page.get()

    def present(self) -> Reading:
        """Return the gauges that add up and the counters, of all processes of this node, a second old at most."""
        return self._read_present() if self._directory is None else self._present.get()

    def _read_page(self) -> bytes:
        registry = CollectorRegistry()
        NodeCollector(registry, str(self._directory))
        return generate_latest(registry)

    def _read_present(self) -> Reading:
        node = None if self._directory is None else NodeCollector(None, str(self._directory), PRESENT)
        return Reading(time.time(), list((node or self._registry).collect()))

    def observer(self, model: str) -> EngineMetrics:
        """Return what counts the work of a model's engine."""
        self.models.add(model)
        return EngineMetrics(self, model)

    def write_regularly(self, engine: EngineMetrics) -> None:
        """Write an engine's state once in a while, from a thread: nothing that hangs elsewhere can hide it."""
        self._engines.add(engine)
        if self._timer is None or not self._timer.is_alive():
            self._timer = threading.Thread(target=_write_states, args=(self._engines,), name="states", daemon=True)
            self._timer.start()

    def expect(self, manifest: Manifest) -> None:
        """Begin the counts of what should not happen to a model: a first count that is not 0 is no increase."""
        for task in manifest.tasks:
            for status in FAILURES:
                self.requests.labels(manifest.name, task, status)
        self.rejections.labels(manifest.name, ServerOverloaded.code)
        self.cancellations.labels(manifest.name)

    def loaded(self, manifest: Manifest, application: str, slots: int, seconds: float) -> None:
        """Tell of a model that can be served, its KV cache's slots, and how long opening it took.

        `application` is the one of Serve that it is in, as Ray's own metrics name it.
        """
        self.info.labels(manifest.name, manifest.task, manifest.precision, manifest.family, application).set(1)
        self.replicas.labels(manifest.name).set(1)
        self.slots.labels(manifest.name).set(slots)
        self.load_seconds.labels(manifest.name).set(seconds)


class _Shared(Generic[Value]):
    """What takes long to read, for as every file of the node is: read once for all who ask at once."""

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._value: Value | None = None
        self._read_again_at = 0.0

    def get(self) -> Value:
        """Return it, a second old at most."""
        with self._lock:
            if self._value is None or time.monotonic() >= self._read_again_at:
                self._value = self._read()
                self._read_again_at = time.monotonic() + FRESH_S
            return self._value


def _write_states(engines: WeakSet[EngineMetrics]) -> None:
    """Write the engines' states until there are none any more."""
    while engines:
        for engine in list(engines):
            try:
                engine.write_state()
            except Exception:
                logger.exception("an engine's state could not be written")
            del engine
        time.sleep(STATE_S)
