"""All metrics, declared once, and the page that Prometheus scrapes.

A replica is one process among several on a node, and a load balancer before them would ask a random one. So each
process keeps its numbers in files of one directory of the node (prometheus-client's multiprocess mode), and whoever is
asked on that node adds them all up: the service's own address, and the node's metrics port (`metrics_port.py`).

Labels are few and bounded: model, task, code, phase, reason, and client, which is the name of an API key. Never a
prompt, a key or an id.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    values,
)

from model.package import Manifest
from service.engine.observer import Load, Phase, Step
from service.metrics_files import NodeCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST
FLUSH_S = 0.25  # how often the engine's numbers go into the files
SETTLE_S = 3.0  # after which the numbers of an idle engine are written once more
FRESH_S = 1.0  # how long the page of a node is shown before its files are read again

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
STEP_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
RATIOS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75)


class Metrics:
    """The metrics of this process; with a directory, together with those of the node's other processes."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._reading, self._page, self._read_again_at = threading.Lock(), b"", 0.0
        self._registry = CollectorRegistry()
        # The library chooses when it is first imported, which Ray may have done before this process knew where.
        if directory is None:
            values.ValueClass = values.MutexValue
        else:
            directory.mkdir(parents=True, exist_ok=True)
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
            values.ValueClass = values.MultiProcessValue()
        self._declare()

    def _declare(self) -> None:
        model, task = ["model"], ["model", "task"]
        self.requests = self._counter("requests", "Answered requests, by HTTP status.", [*task, "code"])
        self.request_seconds = self._histogram("request_seconds", "From a request's arrival to its last byte.", task)
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
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of admitted prompts, sources and texts.", model)
        self.generated_tokens = self._counter("generated_tokens", "Tokens decoded.", model)
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
        self.info = self._gauge("model_info", "1 for each model served.", [*task, "precision", "family"], "livemax")
        self.load_seconds = self._gauge("model_load_seconds", "Opening a package and warming it up.", model, "livemax")
        self.resident = self._gauge("process_resident_memory_bytes", "Memory of a model's processes.", model)

    def _counter(self, name: str, documentation: str, labels: Sequence[str]) -> Counter:
        return Counter(f"trifold_{name}", documentation, labels, registry=self._registry)

    def _gauge(self, name: str, documentation: str, labels: Sequence[str], mode: Any = "livesum") -> Gauge:
        return Gauge(f"trifold_{name}", documentation, labels, registry=self._registry, multiprocess_mode=mode)

    def _histogram(
        self, name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        return Histogram(f"trifold_{name}", documentation, labels, registry=self._registry, buckets=buckets)

    def exposition(self) -> bytes:
        """Return the page, in Prometheus' text format: of all processes of this node, a second old at most."""
        if self._directory is None:
            return generate_latest(self._registry)
        with self._reading:  # every file of the node is read, so for all who ask at once
            if time.monotonic() >= self._read_again_at:
                registry = CollectorRegistry()
                NodeCollector(registry, str(self._directory))
                self._page, self._read_again_at = generate_latest(registry), time.monotonic() + FRESH_S
            return self._page

    def observer(self, model: str) -> EngineMetrics:
        """Return what counts the work of a model's engine."""
        return EngineMetrics(self, model)

    def loaded(self, manifest: Manifest, slots: int, seconds: float) -> None:
        """Tell of a model that can be served, its KV cache's slots, and how long opening it took."""
        self.info.labels(manifest.name, manifest.task, manifest.precision, manifest.family).set(1)
        self.slots.labels(manifest.name).set(slots)
        self.load_seconds.labels(manifest.name).set(seconds)


@dataclass
class _Buffer:
    """A histogram's observations since the last flush: several at once cost what one does."""

    target: Any  # a histogram with its labels
    bounds: Sequence[float]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def flush(self) -> None:
        """Hand the counts over; the library itself takes but one observation at a time."""
        for bucket, count in zip(self.target._buckets, self.counts, strict=True):
            if count:
                bucket.inc(count)
        self.target._sum.inc(self.total)
        self.counts = [0] * len(self.counts)
        self.total = 0.0


class EngineMetrics:
    """One model's observer. A decode step takes half a millisecond, so all is added up and written now and then."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics, self._model = metrics, model
        self._queue = _Buffer(metrics.queue_seconds.labels(model), SECONDS)
        self._first = _Buffer(metrics.first_token_seconds.labels(model), SECONDS)
        self._inter = _Buffer(metrics.inter_token_seconds.labels(model), STEP_SECONDS)
        self._phases: dict[Phase, _PhaseBuffers] = {}
        self._prompt_tokens = self._generated_tokens = 0
        self._written = Load(0, 0, 0, 0)
        self._load: Callable[[], Load] = lambda: self._written
        self._last_step = time.time()
        self._is_due = False
        self._settling: asyncio.TimerHandle | None = None
        self._flush()

    def watch(self, load: Callable[[], Load]) -> None:
        """Ask for the load whenever the numbers are written."""
        self._load = load

    def stepped(self, step: Step) -> None:
        """Count a step."""
        buffers = self._phases.get(step.phase) or self._add_phase(step.phase)
        buffers.seconds.add(step.seconds)
        buffers.rows.add(step.rows)
        buffers.tokens.add(step.tokens)
        buffers.padding.add(1 - step.tokens / step.padded_tokens if step.padded_tokens else 0.0)
        self._last_step = time.time()
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def admitted(self, waited_s: float, tokens: int) -> None:
        """Count the prompt and its wait."""
        self._queue.add(waited_s)
        self._prompt_tokens += tokens

    def first_token(self, after_s: float) -> None:
        """Count a first token."""
        self._first.add(after_s)
        self._generated_tokens += 1

    def next_tokens(self, after_s: float, sequences: int = 1) -> None:
        """Count another token of each."""
        self._inter.add(after_s, sequences)
        self._generated_tokens += sequences

    def _flush(self) -> None:
        """Write what has been added up, and how things are."""
        self._is_due = False
        metrics, model, load = self._metrics, self._model, self._load()
        for buffer in (self._queue, self._first, self._inter, *chain.from_iterable(self._phases.values())):
            buffer.flush()
        metrics.prompt_tokens.labels(model).inc(self._prompt_tokens)
        metrics.generated_tokens.labels(model).inc(self._generated_tokens)
        self._prompt_tokens = self._generated_tokens = 0
        metrics.prefix_queries.labels(model).inc(load.prefix_queried - self._written.prefix_queried)
        metrics.prefix_hits.labels(model).inc(load.prefix_hit - self._written.prefix_hit)
        metrics.running.labels(model).set(load.running)
        metrics.waiting.labels(model).set(load.waiting)
        metrics.queued_tokens.labels(model).set(load.queued_tokens)
        metrics.slots_used.labels(model).set(load.slots_used)
        metrics.kv_bytes.labels(model).set(load.kv_bytes)
        metrics.kv_capacity.labels(model).set(load.kv_capacity_bytes)
        metrics.last_step.labels(model).set(self._last_step)
        metrics.resident.labels(model).set(_resident_bytes())
        self._written = load
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if load.kv_bytes or load.waiting:  # which end without a step: at rest, or where a request is refused
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._flush)

    def _add_phase(self, phase: Phase) -> _PhaseBuffers:
        metrics, labels = self._metrics, (self._model, phase)
        self._phases[phase] = _PhaseBuffers(
            _Buffer(metrics.step_seconds.labels(*labels), STEP_SECONDS),
            _Buffer(metrics.batch_rows.labels(*labels), ROWS),
            _Buffer(metrics.batch_tokens.labels(*labels), TOKENS),
            _Buffer(metrics.padding_ratio.labels(*labels), RATIOS),
        )
        return self._phases[phase]


class _PhaseBuffers(NamedTuple):
    seconds: _Buffer
    rows: _Buffer
    tokens: _Buffer
    padding: _Buffer


def _resident_bytes() -> int:
    """Return this process's memory in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
