from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from model.package.generation import EarlyStopping
from service.engine.beam_search import BeamParams, BeamSearch, Candidates, _largest
from service.engine.constraints import Constraints

END, OTHER = 2, 7


def step(*continuations: tuple[int, float]) -> Candidates:
    ids, log_probabilities = zip(*continuations, strict=True)
    return Candidates(np.array([log_probabilities], np.float32), np.array([ids]))


@pytest.mark.parametrize(("early_stopping", "ids"), [(True, []), (False, []), ("never", [OTHER])])
def test_only_never_waits_for_what_a_beam_may_come_to(early_stopping: EarlyStopping, ids: list[int]) -> None:
    search = BeamSearch(BeamParams(10, beam_size=1, early_stopping=early_stopping), END)
    search.advance(step((END, -1.0), (OTHER, -1.1)))  # −1.1 of one token is worse, of several may be better
    if not search.is_finished:
        search.advance(step((END, -0.1), (OTHER, -3.0)))

    assert search.hypotheses()[0].ids == ids


def test_a_live_beam_that_is_better_at_its_length_goes_on_unless_the_search_stops_early() -> None:
    for early_stopping, is_finished in ((True, True), (False, False)):
        search = BeamSearch(BeamParams(10, beam_size=2, n_best=2, early_stopping=early_stopping), END)
        search.advance(step((OTHER, -0.1), (END, -3.0), (5, -4.0), (6, -9.0)))
        rows = [[-0.1, -2.0, -9.0, -9.0], [-5.0, -9.0, -9.0, -9.0]]
        ids = [[OTHER, END, 5, 6], [END, 5, 6, OTHER]]
        search.advance(Candidates(np.array(rows, np.float32), np.array(ids)))

        assert search.is_finished is is_finished


@pytest.mark.parametrize(
    ("constraints", "is_finished"),
    [
        (Constraints(), True),
        (Constraints(logit_bias={5: -1.0}, presence_penalty=1.0), True),
        (Constraints(logit_bias={5: 1.0}, renormalize=True), True),
        (Constraints(logit_bias={5: 1.0}), False),
        (Constraints(frequency_penalty=-0.1), False),
    ],
)
def test_a_live_beam_cannot_become_better_unless_something_is_added(
    constraints: Constraints, is_finished: bool
) -> None:
    search = BeamSearch(BeamParams(10, beam_size=2, length_penalty=0.0, constraints=constraints), END)
    search.advance(step((END, -0.1), (OTHER, -0.2), (5, -4.0), (6, -9.0)))

    assert search.is_finished is is_finished


def test_what_may_not_come_is_no_beam() -> None:
    search = BeamSearch(BeamParams(10, beam_size=2), END)

    assert search.advance(step((OTHER, 0.0), (0, -np.inf), (0, -np.inf), (0, -np.inf))) == [0]
    assert search.beams == [[OTHER]]


def test_enough_continuations_are_looked_at_for_all_ends() -> None:
    params = BeamParams(10, beam_size=3, stop_ids=frozenset({3, 4}))

    assert BeamSearch(params, END).candidates == 12 and BeamSearch(BeamParams(10, 3), END).candidates == 6


@pytest.mark.parametrize("count", [1, 4, 30, 99])
def test_the_largest_come_in_their_order_and_of_equals_the_first(count: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = np.where(rng.random(60) < 0.3, -np.inf, rng.integers(0, 9, 60).astype(np.float64))
        np.testing.assert_array_equal(_largest(values, count), np.argsort(-values, kind="stable")[:count])


def test_candidates_behind_full_beams_are_not_looked_at() -> None:
    class Watched(list[int]):
        copies = 0

        def __iter__(self) -> Iterator[int]:
            Watched.copies += 1
            return super().__iter__()

    ends = frozenset(range(100, 164))
    search = BeamSearch(BeamParams(10, beam_size=4, stop_ids=ends), END)
    search.beams = [Watched()]
    search.advance(step(*((place, -0.01 * place) for place in range(search.candidates))))

    assert len(search.beams) == 4 and Watched.copies <= 5


def test_a_beam_of_which_no_numbers_came_does_not_end_the_others() -> None:
    search = BeamSearch(BeamParams(10, beam_size=2), END)
    search.advance(step((OTHER, -0.1), (5, -0.2), (6, -3.0), (8, -4.0)))
    rows = np.array([[np.nan] * 4, [-0.1, -0.2, -0.3, -0.4]], np.float32)
    parents = search.advance(Candidates(rows, np.array([[3, 4, 5, 6]] * 2)))

    assert parents == [1, 1] and search.beams == [[5, 3], [5, 4]]


@pytest.mark.parametrize(("max_tokens", "most"), [(1, 4), (10, 12)])
def test_a_grammar_is_asked_of_few_candidates_where_all_would_be_whole(max_tokens: int, most: int) -> None:
    asked: list[int] = []

    def completes(_row: int, token: int) -> bool:
        asked.append(token)
        return True

    ends = frozenset(range(100, 164))
    search = BeamSearch(BeamParams(max_tokens, beam_size=4, stop_ids=ends), END)
    search.advance(step(*((place, -0.01 * place) for place in range(search.candidates))), completes)

    assert len(asked) <= most and [found.ids for found in search.hypotheses()] == [[0]]
