from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from model.decoding import beam_search, greedy

END = 0


def logits_of(prefix: list[int]) -> Tensor:
    """A tiny language of four tokens, different behind every prefix."""
    return torch.randn(4, generator=torch.Generator().manual_seed(hash(tuple(prefix)) % 2**31)) * 2


def log_probability(ids: tuple[int, ...]) -> float:
    return sum(float(logits_of([9, *ids[:place]]).log_softmax(-1)[token]) for place, token in enumerate(ids))


def test_greedy_takes_the_likeliest_until_the_end() -> None:
    output = greedy(logits_of, [9], END, 20)

    assert END not in output
    for place, token in enumerate(output):
        assert int(logits_of([9, *output[:place]]).argmax()) == token
    assert len(output) == 20 or int(logits_of([9, *output]).argmax()) == END


def test_a_beam_as_wide_as_the_language_finds_the_best_of_all() -> None:
    longest = 3
    everything = []
    for length in range(1, longest + 1):
        for ids in itertools.product(range(4), repeat=length):
            is_whole = END not in ids[:-1] and (ids[-1] == END or length == longest)
            if is_whole:
                everything.append((log_probability(ids) / length, [i for i in ids if i != END]))
    best_score, best = max(everything)

    found = beam_search(logits_of, [9], END, longest, beam_size=4**longest)
    assert found[0].ids == best
    assert math.isclose(found[0].score, best_score, abs_tol=1e-5)


def test_a_beam_of_one_is_greedy() -> None:
    assert beam_search(logits_of, [9], END, 6, beam_size=1)[0].ids == greedy(logits_of, [9], END, 6)


def test_without_a_length_penalty_the_score_is_the_log_probability() -> None:
    best = beam_search(logits_of, [9], END, 4, beam_size=3, length_penalty=0.0)[0]

    ended = (*best.ids, END) if len(best.ids) < 4 else tuple(best.ids)
    assert math.isclose(best.score, log_probability(ended), abs_tol=1e-5)
