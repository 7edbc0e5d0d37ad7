"""Beam search over a package's graphs, many sentences at a time and all of them to the end: for evaluation only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model.export.naive import NaiveDecoder, NaiveGraph
from model.package import Manifest
from model.package.inputs import encoder_inputs, pad_rows


def translate_batch(
    manifest: Manifest,
    graphs: Mapping[str, NaiveGraph],
    sources: Sequence[Sequence[int]],
    beam_size: int,
    forced: int | None = None,
) -> list[list[int]]:
    """Return the ids of each source's best translation, by the rules of `model.decoding.beam_search`; 1 is greedy.

    All begin with the token that is `forced`, and have none of those that never come by the package's own rules.
    """
    special = manifest.special_ids
    assert manifest.cache is not None and special.start is not None and special.end is not None
    ids, lengths = pad_rows(sources, special.pad)
    steps = min(2 * ids.shape[1] + 10, manifest.limits.max_positions)
    cross = graphs["encoder"].run(encoder_inputs(ids, lengths))
    rows = len(sources) * beam_size
    decoder = NaiveDecoder(graphs["decoder"], manifest.cache, rows, steps)
    decoder.set_source(
        {name: array.repeat(beam_size, axis=0) for name, array in cross.items()}, lengths.repeat(beam_size)
    )
    searches = [_Search(beam_size, special.end, steps) for _ in sources]
    tokens = np.full(rows, special.start, np.int64)
    count = np.array([2 * beam_size], np.int64)
    generation = manifest.generation_for(manifest.task)
    never = [*generation.suppress_ids, *(word[0] for word in generation.bad_words if len(word) == 1)]
    for position in range(steps):
        logits = decoder.step(tokens[:, None], np.ones(rows, np.int64), position)[:, 0]
        if position == 0 and forced is not None:
            logits[:, np.arange(logits.shape[1]) != forced] = -np.inf
        logits[:, never] = -np.inf
        likeliest = graphs["candidates"].run({"logits": logits, "count": count})
        parents = np.arange(rows)
        for index, search in enumerate(searches):
            place = slice(index * beam_size, (index + 1) * beam_size)
            if not search.is_over:
                chosen = search.advance(likeliest["log_probabilities"][place], likeliest["ids"][place])
                parents[place] = np.array(chosen) + index * beam_size
                tokens[place] = [beam[-1] for beam in search.beams]
        if all(search.is_over for search in searches):
            break
        if beam_size > 1:
            decoder.reorder(parents)
    return [search.best() for search in searches]


class _Search:
    """One sentence's beams; always `beam_size` of them, in the beginning all but one without a chance."""

    def __init__(self, beam_size: int, end: int, steps: int) -> None:
        self.beams: list[list[int]] = [[] for _ in range(beam_size)]
        self._totals = np.array([0.0] + [-np.inf] * (beam_size - 1))
        self._finished: list[tuple[float, list[int]]] = []
        self._end, self._steps = end, steps

    @property
    def is_over(self) -> bool:
        """Whether as many hypotheses as beams have finished, or the steps are used up."""
        return len(self._finished) >= len(self.beams) or len(self.beams[0]) >= self._steps

    def advance(self, log_probabilities: NDArray[np.float32], ids: NDArray[np.int64]) -> list[int]:
        """Take a step over each beam's likeliest continuations (beams, 2 · beams); return which beam each continues."""
        size, length = len(self.beams), len(self.beams[0]) + 1
        totals = self._totals[:, None] + log_probabilities
        kept: list[tuple[int, int, float]] = []
        for rank, place in enumerate(np.argsort(-totals.ravel(), kind="stable")[: 2 * size].tolist()):
            row, column = divmod(place, totals.shape[1])
            token, total = int(ids[row, column]), float(totals[row, column])
            if token != self._end and len(kept) < size:
                kept.append((row, token, total))
            elif token == self._end and rank < size and total > -np.inf:
                self._finished.append((total / length, self.beams[row]))
        self.beams = [[*self.beams[row], token] for row, token, _ in kept]
        self._totals = np.array([total for _, _, total in kept])
        return [row for row, _, _ in kept]

    def best(self) -> list[int]:
        """Return the best hypothesis; the unfinished count if the steps are used up."""
        live = zip((self._totals / max(1, len(self.beams[0]))).tolist(), self.beams, strict=True)
        rivals = [*self._finished, *live] if len(self.beams[0]) >= self._steps else self._finished
        return max(rivals, key=lambda rival: rival[0])[1]
