"""Choosing the next token of every row: changed logits, the likeliest or seeded draws, log probabilities.

No vocabulary is sorted. `python -m loadtests.bench_engine --only sampling` measures what it costs beside greedy.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.arrays import Floats, Ids, take
from service.engine.drawing import draw
from service.engine.logits_processors import adjusted
from service.engine.logprobs import SampledToken, scored
from service.engine.passes import NUMPY, Passes
from service.engine.sampling_params import Row


def sample(logits: Floats, rows: Sequence[Row], passes: Passes = NUMPY) -> list[SampledToken]:
    """Choose a token for each row of logits (rows, vocab_size); a row's choice depends on nothing but the row.

    The logits are changed meanwhile, and left as they were.
    """
    states = {place: state for place, row in enumerate(rows) if (state := row.constraint_state()) is not None}
    if not states:
        return _with_logprobs(logits, rows, draw(logits, rows, passes), passes)
    with adjusted(logits, states) as changed:
        chosen = _with_logprobs(changed, rows, draw(changed, rows, passes), passes)
    for place, state in states.items():
        forced = state.forced()
        if forced is not None:
            chosen[place] = _certain(forced, rows[place].params.logprobs)
    return chosen


def accepted(row: Row, token: SampledToken) -> SampledToken:
    """Take a chosen token for good: return it with the end that its row's grammar makes."""
    state = row.constraint_state()
    end = None if state is None else state.take(token.id)
    return token if end is None else token._replace(end=end)


def _certain(token: int, alternatives: int | None) -> SampledToken:
    """Return a token that had to come."""
    if alternatives is None:
        return SampledToken(token)
    return SampledToken(token, 0.0, ((token, 0.0),) if alternatives else ())


def _with_logprobs(logits: Floats, rows: Sequence[Row], tokens: Ids, passes: Passes) -> list[SampledToken]:
    chosen = [SampledToken(token) for token in tokens.tolist()]
    alternatives = {place: row.params.logprobs for place, row in enumerate(rows) if row.params.logprobs is not None}
    if alternatives:
        places = list(alternatives)
        tokens_scored = scored(take(logits, places), tokens[places], list(alternatives.values()), passes)
        for place, token in zip(alternatives, tokens_scored, strict=True):
            chosen[place] = token
    return chosen
