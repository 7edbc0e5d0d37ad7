"""Choosing the tokens of a step, from logits that lie in the processor's memory or in a device's."""

from __future__ import annotations

import logging
from collections import abc
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import numpy as np

from service.engine.arrays import Array, Floats, take
from service.engine.batch import StepChoice
from service.engine.beam_candidates import likeliest_allowed
from service.engine.beam_search import Candidates
from service.engine.constraints import ConstraintState
from service.engine.device import DeviceArray, DeviceGraphs
from service.engine.drawing import draw
from service.engine.isolation import Failure, as_exception
from service.engine.logprobs import SampledToken, scored
from service.engine.passes import NUMPY, Passes
from service.engine.sampling import accepted, sample
from service.engine.sampling_params import Row
from service.engine.sequence import Sampling, Search, Sequence
from service.engine.session import Session
from service.engine.shortlist import draw_from, length_for, temperature_of

logger = logging.getLogger(__name__)

CANDIDATES = ["log_probabilities", "ids"]  # what a package's graph of that name has found


class StepLogits(Protocol):
    """The logits of a step's slots, and what is chosen of them: of each row by that row alone."""

    def sample(self, slots: abc.Sequence[int], rows: abc.Sequence[Row]) -> list[SampledToken]:
        """Choose a token for each of some slots."""

    def search(
        self, slots: abc.Sequence[int], states: Mapping[int, ConstraintState], count: int
    ) -> tuple[Array, Array]:
        """Return each slot's likeliest continuations, log probabilities and ids (slots, count), best first.

        `states` are the constraints of some, by their place among the slots.
        """


class HostLogits:
    """Logits in the processor's memory, (slots, V) float32."""

    def __init__(self, values: Floats, candidates: Session, passes: Passes) -> None:
        self._values, self._passes = values, passes
        self._likeliest = partial(_likeliest, candidates, passes)

    def sample(self, slots: abc.Sequence[int], rows: abc.Sequence[Row]) -> list[SampledToken]:
        """Choose a token for each of some slots."""
        return sample(self._rows(slots), rows, self._passes)

    def search(
        self, slots: abc.Sequence[int], states: Mapping[int, ConstraintState], count: int
    ) -> tuple[Array, Array]:
        """Return each slot's likeliest continuations."""
        return likeliest_allowed(self._rows(slots), states, count, self._likeliest, self._passes)

    def _rows(self, slots: abc.Sequence[int]) -> Floats:
        """Return the logits of some slots, without a copy where they are consecutive."""
        return take(self._values, list(slots))


class DeviceLogits:
    """Logits in a device's memory, (slots, V) float16.

    Of greedy rows and of searches only ids and log probabilities come back, of draws a shortlist. The logits of rows
    with constraints, and of those that a shortlist does not decide, are copied and chosen from as everywhere.
    """

    def __init__(
        self, values: DeviceArray, rows: int, graphs: DeviceGraphs, candidates: Session, passes: Passes
    ) -> None:
        self._graphs, self._candidates, self._passes = graphs, candidates, passes
        self._likeliest = partial(_likeliest, candidates, passes)
        self._vocab_size = values.shape[-1]
        self._view = values.view(shape=(rows, self._vocab_size))

    def sample(self, slots: abc.Sequence[int], rows: abc.Sequence[Row]) -> list[SampledToken]:
        """Choose a token for each of some slots."""
        alike: dict[int | None, list[int]] = {}
        for place, row in enumerate(rows):
            alike.setdefault(_tokens_needed(row), []).append(place)
        tokens: dict[int, SampledToken] = {}
        for needed, places in alike.items():
            chosen = self._chosen(needed, [slots[place] for place in places], [rows[place] for place in places])
            tokens.update(zip(places, chosen, strict=True))
        return [tokens[place] for place in range(len(rows))]

    def _chosen(self, needed: int | None, slots: list[int], rows: list[Row]) -> list[SampledToken]:
        """Choose for rows that need as many tokens to choose from; None: all."""
        if needed is None:
            return sample(self._host_rows(slots), rows, self._passes)
        if needed == 1:
            ids = self._graphs.likeliest(self._view)
            return [SampledToken(int(ids[slot])) for slot in slots]
        return self._by_shortlists(slots, rows, needed)

    def _by_shortlists(self, slots: list[int], rows: list[Row], length: int) -> list[SampledToken]:
        temperatures = np.array([temperature_of(row.params) for row in rows])
        shortlist = self._graphs.shortlist(self._view, np.array(slots), temperatures, length)
        drawn = draw_from(shortlist, rows)
        tokens, others = drawn.tokens, sorted(drawn.behind + drawn.undecided)
        if others:
            logits = self._host_rows([slots[place] for place in others])
            for at, place in enumerate(others):
                own = logits[at : at + 1]
                if place in drawn.behind:
                    tokens[place] = _among_others(own, shortlist.ids[place], rows[place], self._passes)
                else:
                    (tokens[place],) = sample(own, [rows[place]], self._passes)
        return [tokens[place] for place in range(len(rows))]

    def search(
        self, slots: abc.Sequence[int], states: Mapping[int, ConstraintState], count: int
    ) -> tuple[Array, Array]:
        """Return each slot's likeliest continuations."""
        if states:
            return likeliest_allowed(self._host_rows(slots), states, count, self._likeliest, self._passes)
        count = min(count, self._vocab_size)
        there = self._graphs.gather_logits(self._view, np.array(slots))
        log_probabilities = np.empty((len(slots), count), np.float32)
        ids = np.empty((len(slots), count), np.int64)
        bound = self._candidates.bound()
        bound.bind(
            {"logits": there.view(), "count": np.array([count])}, {"log_probabilities": log_probabilities, "ids": ids}
        )
        bound.run()
        return log_probabilities, ids

    def _host_rows(self, slots: abc.Sequence[int]) -> Floats:
        return self._graphs.logits(self._view, np.array(slots))


def _likeliest(candidates: Session, passes: Passes, logits: Floats, count: int) -> tuple[Array, Array]:
    """Return the likeliest continuations, by our own operators where there are some, else by the package's graph."""
    count = min(count, logits.shape[-1])
    if passes is NUMPY:
        log_probabilities, ids = candidates.run({"logits": logits, "count": np.array([count])}, CANDIDATES)
        return log_probabilities, ids
    best, ids = passes.likeliest(logits, [count] * len(logits))
    return (best - passes.log_totals(logits)).astype(np.float32), ids


def _tokens_needed(row: Row) -> int | None:
    """Return how many of the likeliest tokens a row is chosen from; None where it takes all."""
    if row.constraint_state() is not None:
        return None
    is_plain = row.params.temperature == 0 and row.params.logprobs is None
    return 1 if is_plain else length_for(row.params)


def _among_others(logits: Floats, ids: Array, row: Row, passes: Passes) -> SampledToken:
    """Draw one of the tokens that are not among some: logits (1, V)."""
    without = logits.copy()
    without[0, ids] = -np.inf
    token = draw(without, [row], passes)
    if row.params.logprobs is None:
        return SampledToken(int(token[0]))
    return scored(logits, token, [row.params.logprobs], passes)[0]


def choose(logits: StepLogits, sequences: abc.Sequence[Sequence]) -> list[StepChoice | Failure]:
    """Choose from the logits of all slots: sampled rows together, and searched rows together.

    Repeatable: the logits are left as they were, and after an error the seeded generators too. A row whose grammar
    fails on its token has a failure, as the others' have taken theirs.
    """
    rows = {s.slots[0]: s.decoding.row for s in sequences if isinstance(s.decoding, Sampling)}
    seeded = [row.rng.bit_generator for row in rows.values() if row.params.seed is not None]
    states = [generator.state for generator in seeded]
    try:
        slots = sorted(rows)  # the order of the memory: rows that are all there are need no copy
        tokens = logits.sample(slots, [rows[slot] for slot in slots]) if slots else []
        searches = {s: s.decoding for s in sequences if isinstance(s.decoding, Search)}
        candidates = _search(logits, searches) if searches else {}
    except BaseException:  # a library's may be none of `Exception`
        for generator, state in zip(seeded, states, strict=True):
            generator.state = state
        raise
    sampled = {slot: _accept_or_fail(rows[slot], token) for slot, token in zip(slots, tokens, strict=True)}
    return [candidates[s] if s in candidates else sampled[s.slots[0]] for s in sequences]


def _accept_or_fail(row: Row, token: SampledToken) -> SampledToken | Failure:
    try:
        return accepted(row, token)
    except BaseException as error:
        logger.exception("a grammar failed on a token; its sequence ends, and the others go on")
        return Failure(as_exception(error))


def choose_with_drafts(
    logits: StepLogits,
    sequences: abc.Sequence[Sequence],
    drafts: Mapping[Sequence, list[int]],
    first_rows: Mapping[int, int],
) -> list[StepChoice | Failure]:
    """Choose where slots have several rows: of those of a draft as many tokens as it has guessed right, and one more.

    `first_rows` are those of the slots. Repeatable as `choose` is, as long as no token of a draft was taken.
    """
    choices = dict(zip(sequences, choose(_Behind(logits, first_rows, 0), sequences), strict=True))
    taken: dict[Sequence, list[SampledToken]] = {}
    for sequence in drafts:
        choice = choices[sequence]
        assert isinstance(choice, SampledToken), "bug: a search has a draft"
        taken[sequence] = [choice]
    going = list(drafts)
    for place in range(max(map(len, drafts.values()))):
        going = [s for s in going if _is_right(drafts[s], taken[s], s.decoding)]
        if not going:
            break
        try:
            following = choose(_Behind(logits, first_rows, place + 1), going)
        except Exception:  # who is the culprit shows when it is computed alone
            logger.exception("tokens of drafts could not be chosen; they will be in steps of their own")
            break
        for sequence, choice in zip(going, following, strict=True):
            assert isinstance(choice, SampledToken)
            taken[sequence].append(choice)
    return [taken.get(sequence, choice) for sequence, choice in choices.items()]


def _is_right(draft: list[int], taken: list[SampledToken], decoding: Sampling | Search) -> bool:
    """Tell whether the last token is what a draft has there, and one comes behind it."""
    place, token = len(taken) - 1, taken[-1]
    return (
        place < len(draft) and token.id == draft[place] and isinstance(decoding, Sampling) and decoding.continues(token)
    )


class _Behind:
    """The logits of slots that have several rows: of each those so many rows behind its first."""

    def __init__(self, logits: StepLogits, first_rows: Mapping[int, int], behind: int) -> None:
        self._logits, self._first_rows, self._behind = logits, first_rows, behind

    def sample(self, slots: abc.Sequence[int], rows: abc.Sequence[Row]) -> list[SampledToken]:
        """Choose a token for each of some slots."""
        return self._logits.sample(self._rows(slots), rows)

    def search(
        self, slots: abc.Sequence[int], states: Mapping[int, ConstraintState], count: int
    ) -> tuple[Array, Array]:
        """Return each slot's likeliest continuations."""
        return self._logits.search(self._rows(slots), states, count)

    def _rows(self, slots: abc.Sequence[int]) -> list[int]:
        return [self._first_rows[slot] + self._behind for slot in slots]


def _search(logits: StepLogits, searches: Mapping[Sequence, Search]) -> dict[Sequence, Candidates]:
    """Return what each search gets."""
    most = max(search.candidates for search in searches.values())
    slots = sorted(slot for sequence in searches for slot in sequence.slots)  # the order of the memory, see `choose`
    place_of = {slot: place for place, slot in enumerate(slots)}
    rows = [
        (place_of[slot], row)
        for sequence, search in searches.items()
        for slot, row in zip(sequence.slots, search.constraint_states(), strict=True)
    ]
    log_probabilities, ids = logits.search(slots, {place: row for place, row in rows if row is not None}, most)
    chosen: dict[Sequence, Candidates] = {}
    for sequence, search in searches.items():
        places, count = [place_of[slot] for slot in sequence.slots], search.candidates
        chosen[sequence] = Candidates(log_probabilities[places, :count], ids[places, :count])
    return chosen
