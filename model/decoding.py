"""Slow decoding without any cache, one sequence at a time: the truth that the engine is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.architectures import DecoderLM, EncoderDecoder

NextLogits = Callable[[list[int]], Tensor]  # a prefix's ids → logits of the token behind it, (vocab_size,)


@dataclass(frozen=True)
class Hypothesis:
    """One finished decoding: its ids without the end token, and its score."""

    ids: list[int]
    score: float


def next_logits(model: DecoderLM | EncoderDecoder, source_ids: Sequence[int] | None = None) -> NextLogits:
    """Return the function from a prefix to the next token's logits, everything computed anew at each call."""

    @torch.no_grad()
    def compute(prefix: list[int]) -> Tensor:
        ids = torch.tensor([prefix])
        if isinstance(model, EncoderDecoder):
            source = torch.tensor([list(source_ids or [])])
            return model(source, torch.ones_like(source), ids)[0, -1]
        return model(ids)[0, -1]

    return compute


def greedy(logits: NextLogits, prompt: Sequence[int], end: int, max_tokens: int) -> list[int]:
    """Return the likeliest token each time, until `end` (left out) or `max_tokens`."""
    output: list[int] = []
    while len(output) < max_tokens:
        token = int(logits([*prompt, *output]).argmax())
        if token == end:
            break
        output.append(token)
    return output


def beam_search(
    logits: NextLogits,
    prompt: Sequence[int],
    end: int,
    max_tokens: int,
    beam_size: int,
    length_penalty: float = 1.0,
    n_best: int = 1,
) -> list[Hypothesis]:
    """Return up to `n_best` hypotheses, best first.

    A hypothesis scores Σ log p / length^length_penalty, its length counting the end token (Wu et al. 2016, section 7,
    in its simplest form). Of the 2·beam_size likeliest continuations, those among the first beam_size finish that end,
    or are as long as they may be. The search stops when beam_size hypotheses have finished. Stopping earlier, once no
    live beam can reach the n_best, gives the same result.
    """
    live: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[Hypothesis] = []
    for length in range(1, max_tokens + 1):
        candidates = []
        for ids, total in live:
            log_probabilities = logits([*prompt, *ids]).double().log_softmax(-1)
            top = log_probabilities.topk(min(2 * beam_size, len(log_probabilities)))
            candidates += [
                (total + float(value), ids, int(token)) for value, token in zip(top.values, top.indices, strict=True)
            ]
        candidates = sorted(candidates, key=lambda candidate: -candidate[0])[: 2 * beam_size]
        live = []
        for rank, (total, ids, token) in enumerate(candidates):
            if token == end or length == max_tokens:
                if rank < beam_size:
                    output = ids if token == end else [*ids, token]
                    finished.append(Hypothesis(output, total / length**length_penalty))
            elif len(live) < beam_size:
                live.append(([*ids, token], total))
        if len(finished) >= beam_size:
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)[:n_best]
