"""What a model's engine does, added up: a decode step takes half a millisecond, so it is written now and then."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from service.engine.observer import Ending, Load, Phase, Step
from service.metrics_process import heap_bytes, resident_bytes

if TYPE_CHECKING:
    from service.metrics import Metrics

FLUSH_S = 0.25  # how often counts go into the files while there are steps


@dataclass
class _Buffer:
    """A histogram's observations since the last flush: several at once cost what one does."""

    target: Any  # a histogram with its labels
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self._bounds: Sequence[float] = self.target._upper_bounds[:-1]  # the last is infinity
        self.counts = [0] * (len(self._bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self._bounds, value)] += times
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
    """One model's observer. Counts are written soon after steps; the present state is, by a timer, in any case."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics, self._model = metrics, model
        self._queue = _Buffer(metrics.queue_seconds.labels(model))
        self._first = _Buffer(metrics.first_token_seconds.labels(model))
        self._inter = _Buffer(metrics.inter_token_seconds.labels(model))
        self._per_token = _Buffer(metrics.token_seconds.labels(model))
        self._prompts = _Buffer(metrics.prompt_length.labels(model))
        self._outputs = _Buffer(metrics.output_length.labels(model))
        self._phases: dict[Phase, _PhaseBuffers] = {}
        self._prompt_tokens = self._generated_tokens = self._drafted = self._accepted = 0
        self._written = Load(0, 0, 0, 0)
        self._load: Callable[[], Load] = lambda: self._written
        self._last_step = time.time()
        self._is_due = False
        self._is_over = False
        self._flush()

    def watch(self, load: Callable[[], Load]) -> None:
        """Ask for the load whenever the numbers are written."""
        self._load = load
        self._metrics.write_regularly(self)

    def unwatch(self) -> None:
        """Write no more how things are: the model may have been opened anew, and has another observer then."""
        self._is_over = True
        self._load = lambda: self._written

    def stepped(self, step: Step) -> None:
        """Count a step."""
        buffers = self._phases.get(step.phase) or self._add_phase(step.phase)
        buffers.seconds.add(step.seconds)
        buffers.rows.add(step.rows)
        buffers.tokens.add(step.tokens)
        buffers.padding.add(1 - step.tokens / step.padded_tokens if step.padded_tokens else 0.0)
        self._drafted += step.drafted
        self._accepted += step.accepted
        self._last_step = time.time()
        self._will_flush()

    def admitted(self, waited_s: float, tokens: int) -> None:
        """Count the prompt and its wait."""
        self._queue.add(waited_s)
        self._prompts.add(tokens)
        self._prompt_tokens += tokens

    def first_token(self, after_s: float) -> None:
        """Count a first token."""
        self._first.add(after_s)
        self._generated_tokens += 1

    def next_tokens(self, after_s: float, sequences: int = 1) -> None:
        """Count another token of each."""
        self._inter.add(after_s, sequences)
        self._generated_tokens += sequences

    def finished(self, ending: Ending, tokens: int, seconds: float) -> None:
        """Count an end; what had no token has no length, and what had one no time per token."""
        self._metrics.finished.labels(self._model, ending).inc()
        if tokens:
            self._outputs.add(tokens)
        if tokens > 1:
            self._per_token.add(seconds / (tokens - 1))
        self._will_flush()

    def write_state(self) -> None:
        """Write how things are now, from any thread: also when a step hangs, or the event loop does."""
        if self._is_over:
            return
        metrics, model, load = self._metrics, self._model, self._load()
        metrics.running.labels(model).set(load.running)
        metrics.waiting.labels(model).set(load.waiting)
        metrics.queued_tokens.labels(model).set(load.queued_tokens)
        metrics.slots_used.labels(model).set(load.slots_used)
        metrics.kv_bytes.labels(model).set(load.kv_bytes)
        metrics.kv_capacity.labels(model).set(load.kv_capacity_bytes)
        metrics.last_step.labels(model).set(self._last_step)
        metrics.stalled.labels(model).set(load.stalled_s)
        metrics.resident.labels(model).set(resident_bytes() / len(metrics.models))
        metrics.heap.labels(model).set(heap_bytes() / len(metrics.models))

    def _will_flush(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        """Write what has been added up, and how things are."""
        self._is_due = False
        metrics, model, load = self._metrics, self._model, self._load()
        buffers = (self._queue, self._first, self._inter, self._per_token, self._prompts, self._outputs)
        for buffer in (*buffers, *chain.from_iterable(self._phases.values())):
            buffer.flush()
        metrics.prompt_tokens.labels(model).inc(self._prompt_tokens)
        metrics.generated_tokens.labels(model).inc(self._generated_tokens)
        metrics.drafted_tokens.labels(model).inc(self._drafted)
        metrics.accepted_drafts.labels(model).inc(self._accepted)
        self._prompt_tokens = self._generated_tokens = self._drafted = self._accepted = 0
        metrics.prefix_queries.labels(model).inc(load.prefix_queried - self._written.prefix_queried)
        metrics.prefix_hits.labels(model).inc(load.prefix_hit - self._written.prefix_hit)
        self._written = load
        self.write_state()

    def _add_phase(self, phase: Phase) -> _PhaseBuffers:
        metrics, labels = self._metrics, (self._model, phase)
        self._phases[phase] = _PhaseBuffers(
            _Buffer(metrics.step_seconds.labels(*labels)),
            _Buffer(metrics.batch_rows.labels(*labels)),
            _Buffer(metrics.batch_tokens.labels(*labels)),
            _Buffer(metrics.padding_ratio.labels(*labels)),
        )
        return self._phases[phase]


class _PhaseBuffers(NamedTuple):
    seconds: _Buffer
    rows: _Buffer
    tokens: _Buffer
    padding: _Buffer
