"""Schedulers without an engine: made-up sequences, whose steps choose made-up tokens."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from service.engine.admission import Admission, AdmissionLimits
from service.engine.batch import Batch, Decode, Prefill
from service.engine.beam_search import BeamParams, Candidates
from service.engine.kv_cache import KVBudget
from service.engine.logprobs import SampledToken
from service.engine.prefix_cache import PrefixCache
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import Scheduler, SchedulerLimits
from service.engine.sequence import Sampling, Search, Sequence

END = 0


def make_scheduler(max_blocks: int = 0, **limits: Any) -> Scheduler:
    return Scheduler(
        SchedulerLimits(**{"max_slots": 8, "prefill_tokens": 16, **limits}), PrefixCache(max_blocks), KVBudget(10**9)
    )


def make_sequence(prompt: int = 4, max_tokens: int = 100, beam_size: int = 0, source: int = 0) -> Sequence:
    ids = [7] * prompt
    source_ids = [7] * source or None
    if beam_size:
        return Sequence(ids, Search(BeamParams(max_tokens, beam_size), END), source_ids)
    return Sequence(ids, Sampling(SamplingParams(max_tokens, stop_ids=frozenset({END})), ids), source_ids)


def of_client(name: str, sequence: Sequence) -> Sequence:
    sequence.permit = Admission(AdmissionLimits()).admit(name, 1, 1)
    return sequence


def advance(scheduler: Scheduler, rng: random.Random | None = None, row_s: float = 0.0) -> Batch:
    """Schedule a step, check what must hold, and update with made-up tokens; each row took so long."""
    batch = scheduler.schedule()
    assert batch is not None
    scheduler.check_integrity()
    scheduler.update(batch, choices(batch, rng), row_s * sum(batch.work().values()))
    return batch


def choices(batch: Batch, rng: random.Random | None = None) -> list[SampledToken | Candidates | None]:
    if isinstance(batch, Prefill):
        return [None] * len(batch.chunks)
    return [made_up(sequence, rng) for sequence in batch.sequences]


def sequences_of(batch: Batch) -> list[Sequence]:
    return batch.sequences if isinstance(batch, Decode) else [chunk.sequence for chunk in batch.chunks]


def made_up(sequence: Sequence, rng: random.Random | None) -> SampledToken | Candidates:
    if isinstance(sequence.decoding, Sampling):
        return SampledToken(5 if rng is None else rng.randint(0, 9))
    width = sequence.decoding.width
    tokens = range(1, 20 + 2 * width) if rng is None else range(20)  # without the end, or with it
    ids = np.array([(rng or random.Random(1)).sample(tokens, 2 * width) for _ in sequence.slots])
    values = -np.sort(np.array([[(rng or random.Random(2)).random() * 3 for _ in row] for row in ids]))
    return Candidates(values.astype(np.float32), ids)
