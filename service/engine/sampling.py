"""Choosing the next token of every row at once: penalties, temperature, top-k, top-p, min-p, and seeded draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]  # (rows, vocab_size)


@dataclass(frozen=True)
class SamplingParams:
    """How one sequence's tokens are chosen; temperature 0 is greedy, and 0 or 1 switch the filters off."""

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    logprobs: int | None = None  # how many alternatives to report beside the chosen token; None: report nothing
    prompt_logprobs: int | None = None  # the same for the prompt's tokens

    @property
    def changes_logits(self) -> bool:
        """Whether anything must be done to the logits before a token is chosen."""
        neutral = (1.0, 0.0, 0.0, 0)
        return bool(self.logit_bias) or neutral != (
            self.repetition_penalty,
            self.presence_penalty,
            self.frequency_penalty,
            self.min_tokens,
        )


@dataclass(frozen=True)
class SampledToken:
    """A chosen token; with `logprobs` asked for, its natural-log probability and the likeliest alternatives."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass
class Row:
    """What sampling knows of one row."""

    params: SamplingParams
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    rng: np.random.Generator


def sample(logits: Logits, rows: Sequence[Row]) -> list[SampledToken]:
    """Choose a token for each row; a row's choice depends on nothing but the row."""
    changed = adjust(logits, rows)
    greedy = changed.argmax(axis=-1)
    drawn = np.array([row.params.temperature > 0 for row in rows])
    tokens = greedy.copy()
    if drawn.any():
        which = np.flatnonzero(drawn)
        tokens[which] = _draw(changed[which], [rows[index] for index in which.tolist()])
    return _with_logprobs(changed, rows, tokens)


def adjust(logits: Logits, rows: Sequence[Row]) -> Logits:
    """Return the logits after bias, penalties and `min_tokens`; rows without any are passed through."""
    touched = [index for index, row in enumerate(rows) if row.params.changes_logits]
    if not touched:
        return logits
    adjusted = logits.copy()
    for index in touched:
        _adjust_row(adjusted[index], rows[index])
    return adjusted


def _adjust_row(logits: NDArray[np.float32], row: Row) -> None:
    params = row.params
    if params.repetition_penalty != 1.0:  # Keskar et al. 2019: prompt and output count
        seen = np.unique(np.concatenate((row.prompt_ids, row.output_ids)).astype(np.int64))
        values = logits[seen]
        logits[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:  # OpenAI: the output alone counts
        ids, counts = np.unique(np.asarray(row.output_ids, np.int64), return_counts=True)
        logits[ids] -= params.presence_penalty + params.frequency_penalty * counts
    for token, bias in params.logit_bias.items():
        logits[token] += bias
    if len(row.output_ids) < params.min_tokens:
        logits[list(params.stop_ids)] = -np.inf


def log_softmax(logits: Logits) -> NDArray[np.float64]:
    """Return log probabilities along the last axis."""
    shifted: NDArray[np.float64] = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def _draw(logits: Logits, rows: Sequence[Row]) -> NDArray[np.int64]:
    """Draw from the filtered distributions by inverting their cumulative sums at one uniform number a row."""
    # Only top-k and top-p need the tokens in order. What a row needs is its own affair, so its draw is too.
    needs_order = np.array([row.params.top_k > 0 or row.params.top_p < 1 for row in rows])
    drawn = np.empty(len(rows), np.int64)
    for which, draw in ((needs_order, _draw_ordered), (~needs_order, _draw_unordered)):
        places = np.flatnonzero(which)
        if len(places):
            drawn[places] = draw(logits[places], [rows[place] for place in places.tolist()])
    return drawn


def _draw_ordered(logits: Logits, rows: Sequence[Row]) -> NDArray[np.int64]:
    order = np.argsort(-logits, axis=-1)
    weights = _weights(np.take_along_axis(logits, order, axis=-1), rows)
    places = _invert(weights * kept_by_filters(weights, rows), rows)
    drawn: NDArray[np.int64] = np.take_along_axis(order, places[:, None], axis=-1)[:, 0]
    return drawn


def _draw_unordered(logits: Logits, rows: Sequence[Row]) -> NDArray[np.int64]:
    weights = _weights(logits, rows)
    return _invert(weights * (weights >= np.array([row.params.min_p for row in rows])[:, None]), rows)


def _weights(logits: Logits, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return what each token weighs at the row's temperature; the likeliest weighs 1."""
    temperatures = np.array([row.params.temperature for row in rows])[:, None]
    # Subtracting first keeps the smallest temperature from overflowing.
    weights: NDArray[np.float64] = np.exp(
        (logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)) / temperatures
    )
    return weights


def _invert(weights: NDArray[np.float64], rows: Sequence[Row]) -> NDArray[np.int64]:
    cumulative = weights.cumsum(axis=-1)
    draws = np.array([row.rng.random() for row in rows])[:, None] * cumulative[:, -1:]
    places: NDArray[np.int64] = (cumulative <= draws).sum(axis=-1)
    return places


def kept_by_filters(weights: NDArray[np.float64], rows: Sequence[Row]) -> NDArray[np.bool_]:
    """Return which places of descending weights pass top-k, top-p (Holtzman et al. 2020) and min-p, in this order."""
    vocabulary = weights.shape[-1]
    top_k = np.array([row.params.top_k or vocabulary for row in rows])[:, None]
    kept: NDArray[np.bool_] = np.arange(vocabulary) < top_k
    probabilities = weights * kept
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    top_p = np.array([row.params.top_p for row in rows])[:, None]
    before = probabilities.cumsum(axis=-1) - probabilities
    kept &= before < top_p  # the smallest set that reaches top_p, hence always the likeliest
    min_p = np.array([row.params.min_p for row in rows])[:, None]
    kept &= weights >= min_p
    return kept


def _with_logprobs(logits: Logits, rows: Sequence[Row], tokens: NDArray[np.int64]) -> list[SampledToken]:
    chosen = [SampledToken(token) for token in tokens.tolist()]
    for index, row in enumerate(rows):
        if row.params.logprobs is not None:
            chosen[index] = scored(logits[index], chosen[index].id, row.params.logprobs)
    return chosen


def scored(logits: NDArray[np.float32], token: int, alternatives: int) -> SampledToken:
    """Return a token with its log probability among logits (vocab_size,), and the likeliest alternatives."""
    log_probabilities = log_softmax(logits)
    best = np.argsort(-log_probabilities, kind="stable")[:alternatives]
    top = tuple((int(other), float(log_probabilities[other])) for other in best)
    return SampledToken(token, float(log_probabilities[token]), top)
