"""Running a step: arrays into the graphs, choices out. The one part of the engine that works off the event loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from model.package import Manifest
from model.package.inputs import attention_mask, pad_rows
from service.engine.beam_search import Candidates, candidates
from service.engine.kv_cache import KVCache
from service.engine.sampling import SampledToken, sample
from service.engine.scheduler import Batch, Choice, Decode, Prefill, SchedulerLimits
from service.engine.sequence import Sampling, Search, Sequence
from service.engine.session import Array, Session, SessionOptions


class Runner:
    """A generator's or translator's graphs and their KV cache."""

    def __init__(self, folder: Path, manifest: Manifest, options: SessionOptions, limits: SchedulerLimits) -> None:
        assert manifest.cache is not None, "bug: a manifest of a decoder has a cache"
        graphs = {name: Session(folder / graph.file, options) for name, graph in manifest.graphs.items()}
        self._encoder, self._decoder = graphs.get("encoder"), graphs["decoder"]
        self._cross_outputs = manifest.graphs["encoder"].outputs if self._encoder else []
        self._pad = manifest.special_ids.pad
        self.cache = KVCache(
            manifest.cache,
            max_slots=limits.max_slots,
            max_length=manifest.limits.max_positions,
            has_cross=self._encoder is not None,
        )
        self._source_lengths = np.ones(limits.max_slots, np.int64)

    def run(self, batch: Batch) -> list[Choice]:
        """Run a step; a decode returns one choice for each sequence, a prefill nothing."""
        copies = batch.copies
        self._reserve(batch)
        self.cache.copy(copies.targets, copies.origins, copies.length, copies.with_source)
        self._source_lengths[copies.targets] = self._source_lengths[copies.origins]
        if isinstance(batch, Decode):
            return self._decode(batch.sequences)
        if self._encoder is not None:
            self._encode_sources(self._encoder, [s for s in batch.sequences if not s.has_source])
        self._prefill(batch)
        return []

    def _reserve(self, batch: Batch) -> None:
        steps = batch.tokens if isinstance(batch, Prefill) else [1] * len(batch.sequences)
        self.cache.reserve(
            slots=1 + max(slot for sequence in batch.sequences for slot in sequence.slots + batch.copies.targets),
            length=max(sequence.computed + new for sequence, new in zip(batch.sequences, steps, strict=True)),
            source_length=max(len(sequence.source_ids or ()) for sequence in batch.sequences),
        )

    def _encode_sources(self, encoder: Session, sequences: list[Sequence]) -> None:
        if not sequences:
            return
        ids, lengths = pad_rows([sequence.source_ids or [] for sequence in sequences], self._pad)
        inputs = {"input_ids": ids, "attention_mask": attention_mask(lengths, ids.shape[1])}
        projected = encoder.run(inputs, self._cross_outputs)
        for row, sequence in enumerate(sequences):
            (slot,) = sequence.slots
            self._source_lengths[slot] = lengths[row]
            self.cache.store_source(slot, [array[row] for array in projected])

    def _prefill(self, batch: Prefill) -> None:
        """Compute the next part of each prompt, leaving out prompts of a single token, which decode computes."""
        work = [(s, new) for s, new in zip(batch.sequences, batch.tokens, strict=True) if new]
        # Behind a past the operator takes one row at a time; a first prefill may be ragged.
        for sequence, new in [pair for pair in work if pair[0].computed]:
            self._fill([sequence], [new])
        first = [pair for pair in work if not pair[0].computed]
        for run in _runs_of_neighbours(first):
            self._fill([sequence for sequence, _ in run], [new for _, new in run])

    def _fill(self, sequences: list[Sequence], tokens: list[int]) -> None:
        rows = [s.prompt_ids[s.computed : s.computed + new] for s, new in zip(sequences, tokens, strict=True)]
        ids, lengths = pad_rows(rows, self._pad)
        past = np.array([sequence.computed for sequence in sequences])
        self._step(ids, past, past + lengths - 1, sequences[0].slots[0])

    def _decode(self, sequences: list[Sequence]) -> list[Choice]:
        count = sum(len(sequence.slots) for sequence in sequences)
        ids, past = np.zeros((count, 1), np.int64), np.zeros(count, np.int64)
        for sequence in sequences:
            ids[sequence.slots, 0] = sequence.next_tokens()
            past[sequence.slots] = sequence.computed
        logits = self._step(ids, past, past, 0)[:, 0]
        return choose(logits, sequences)

    def _step(self, ids: Array, past: Array, last_positions: Array, first_slot: int) -> Array:
        """Run the decoder over consecutive slots; return the logits of each row's last token, (B, 1, vocab_size)."""
        rows, new = ids.shape
        slots = slice(first_slot, first_slot + rows)
        inputs = {
            "input_ids": ids,
            "position_ids": past[:, None] + np.arange(new),
            "last_positions": last_positions.astype(np.int32),
            "total_length": np.array(past.max() + new, np.int32),
            "logit_positions": (last_positions - past)[:, None],
        }
        if self._encoder is not None:
            inputs["source_lengths"] = self._source_lengths[slots]
        return self._decoder.run_in_place(inputs, self.cache.bind(first_slot, rows), "logits")


def _runs_of_neighbours(work: list[tuple[Sequence, int]]) -> list[list[tuple[Sequence, int]]]:
    """Cut a list of sequences where their slots are not consecutive."""
    runs: list[list[tuple[Sequence, int]]] = []
    for sequence, new in work:
        if runs and runs[-1][-1][0].slots[0] + 1 == sequence.slots[0]:
            runs[-1].append((sequence, new))
        else:
            runs.append([(sequence, new)])
    return runs


def choose(logits: Array, sequences: list[Sequence]) -> list[Choice]:
    """Choose from the logits of all slots: sampled rows together, and searches of one beam size together."""
    chosen: dict[Sequence, Choice] = {}
    sampled = [s for s in sequences if isinstance(s.decoding, Sampling)]
    if sampled:
        rows = [s.decoding.row for s in sampled if isinstance(s.decoding, Sampling)]
        tokens: Mapping[Sequence, SampledToken] = dict(
            zip(sampled, sample(logits[[s.slots[0] for s in sampled]], rows), strict=True)
        )
        chosen.update(tokens)
    searches: dict[int, list[Sequence]] = defaultdict(list)
    for sequence in sequences:
        if isinstance(sequence.decoding, Search):
            searches[sequence.decoding.width].append(sequence)
    for beam_size, group in searches.items():
        found = candidates(logits[[slot for s in group for slot in s.slots]], beam_size)
        start = 0
        for sequence in group:
            rows_of = slice(start, start + len(sequence.slots))
            chosen[sequence] = Candidates(found.log_probabilities[rows_of], found.ids[rows_of])
            start += len(sequence.slots)
    return [chosen[sequence] for sequence in sequences]
