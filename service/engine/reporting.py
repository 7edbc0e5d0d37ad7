"""From steps to what an observer hears: who was admitted, who has a token, who has ended, and what a step cost."""

from __future__ import annotations

import time
from collections import abc
from collections.abc import Mapping

from service.engine.batch import Batch, Prefill
from service.engine.isolation import Failure
from service.engine.observer import Ending, Observer, Step
from service.engine.sequence import Sequence


class Reporter:
    """Tells an observer of an engine's steps, in their order."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._last_decode_at = -1.0

    def tell(self, batch: Batch, results: abc.Sequence[object], rows: int, prefilled: int, started: float) -> None:
        """Tell of a step of so many rows and its results, which computed `prefilled` tokens, padding included."""
        ended = time.perf_counter()
        if isinstance(batch, Prefill):
            self._tell_prefill(batch, rows, prefilled, started, ended)
            return
        pairs = list(zip(batch.sequences, results, strict=True))
        answered = [sequence for sequence, result in pairs if not isinstance(result, Failure)]
        tokens = rows
        if len(answered) < len(pairs):
            tokens -= sum(len(sequence.slots) for sequence, result in pairs if isinstance(result, Failure))
        if batch.drafts:
            counts = {sequence: len(result) for sequence, result in pairs if isinstance(result, list)}
            self._tell_tokens(answered, ended, counts)
            drafted, accepted = sum(len(batch.drafts[s]) for s in counts), sum(counts.values()) - len(counts)
            step = Step("decode", ended - started, rows, tokens + accepted, rows + drafted, drafted, accepted)
            self._observer.stepped(step)
        else:
            self._tell_tokens(answered, ended, {})
            self._observer.stepped(Step("decode", ended - started, rows, tokens, rows))

    def tell_end(self, sequence: Sequence, ending: Ending) -> None:
        """Tell of a sequence's end, once."""
        if sequence.ending is None:
            sequence.ending = ending
            first, last = sequence.first_token_at or 0.0, sequence.last_token_at or 0.0
            self._observer.finished(ending, sequence.decoded, last - first)

    def _tell_prefill(self, batch: Prefill, rows: int, prefilled: int, started: float, ended: float) -> None:
        tokens = sum(chunk.tokens + len(chunk.sequence.source_ids or ()) for chunk in batch.chunks)
        for sequence in batch.sequences:
            if sequence.admitted_at is None:
                sequence.admitted_at = started
                self._observer.admitted(started - sequence.arrived_at, sequence.input_tokens)
        self._observer.stepped(Step("prefill", ended - started, rows, tokens, max(tokens, prefilled)))

    def _tell_tokens(self, answered: abc.Sequence[Sequence], ended: float, counts: Mapping[Sequence, int]) -> None:
        """Tell of each sequence's token; those that had one in the decode before, most of them, are told together.

        `counts` are those of sequences that may have several: each of these took its part of the time.
        """
        together = 0
        for sequence in answered:
            before, sequence.last_token_at = sequence.last_token_at, ended
            if (count := counts.get(sequence, 1)) > 1:
                if before is None:
                    sequence.first_token_at = ended
                    self._observer.first_token(ended - sequence.arrived_at)
                    self._observer.next_tokens(0.0, count - 1)
                else:
                    self._observer.next_tokens((ended - before) / count, count)
            elif before == self._last_decode_at:
                together += 1
            elif before is None:
                sequence.first_token_at = ended
                self._observer.first_token(ended - sequence.arrived_at)
            else:
                self._observer.next_tokens(ended - before)
        if together:
            self._observer.next_tokens(ended - self._last_decode_at, together)
        self._last_decode_at = ended
