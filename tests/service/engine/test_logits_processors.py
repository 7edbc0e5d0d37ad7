from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.engine.arrays import Floats
from service.engine.constraints import Constraints, ConstraintState
from service.engine.logits_processors import adjusted
from service.engine.sampling import sample
from service.engine.sampling_params import Row, SamplingParams

VOCAB_SIZE = 40
KINDS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.7},
    {"presence_penalty": 0.6, "frequency_penalty": -0.3},
    {"logit_bias": {3: 2.0, 39: -100.0}},
    {"stop_ids": frozenset({0, 3}), "min_tokens": 100},
    {
        "repetition_penalty": 0.5,
        "frequency_penalty": 1.1,
        "logit_bias": {5: 1.5},
        "stop_ids": frozenset({5}),
        "min_tokens": 2,
    },
]


def row(output: list[int], **params: Any) -> Row:
    sampling = {name: params.pop(name) for name in ("stop_ids", "logprobs", "temperature") if name in params}
    chosen = SamplingParams(max_tokens=200, constraints=Constraints(**params), **sampling)
    return Row(chosen, [1, 5, 5, 8], output, np.random.default_rng(0))


def states_of(rows: list[Row]) -> dict[int, ConstraintState]:
    return {place: state for place, one in enumerate(rows) if (state := one.constraint_state()) is not None}


def adjust(logits: Floats, rows: list[Row]) -> Floats:
    """Return what the logits are while a token is chosen."""
    with adjusted(logits, states_of(rows)) as changed:
        return changed.copy()


def reference(logits: Floats, one: Row) -> list[float]:
    """Change one token's logit after the other."""
    params = one.params.constraints
    values: list[float] = logits.tolist()
    for token in range(len(values)):
        values[token] += params.logit_bias.get(token, 0)
        count = list(one.output_ids).count(token)
        if count or token in one.prompt_ids:
            penalty = params.repetition_penalty
            values[token] = values[token] / penalty if values[token] > 0 else values[token] * penalty
        values[token] -= params.presence_penalty * bool(count) + params.frequency_penalty * count
        if token in one.params.stop_ids and len(one.output_ids) < params.min_tokens:
            values[token] = -np.inf
    return values


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_counted_as_the_output_grows_is_what_a_recount_finds(kind: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    output: list[int] = []
    one = row(output, **kind)

    for _ in range(60):
        logits = rng.standard_normal((1, VOCAB_SIZE)).astype(np.float32)
        expected = reference(logits[0], one)
        np.testing.assert_allclose(adjust(logits, [one])[0], expected, rtol=1e-5, atol=1e-6)
        output.append(int(rng.integers(VOCAB_SIZE)))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tokens_that_come_several_at_a_time_are_all_counted(kind: dict[str, Any]) -> None:
    output: list[int] = []
    one = row(output, **kind)
    logits = np.ones((1, VOCAB_SIZE), np.float32)
    adjust(logits.copy(), [one])
    output += [4, 4, 9]

    np.testing.assert_allclose(adjust(logits.copy(), [one])[0], reference(logits[0], one), rtol=1e-6)


def test_the_logits_are_left_as_they_were() -> None:
    values = np.random.default_rng(0).standard_normal((len(KINDS), VOCAB_SIZE)).astype(np.float32)
    before = values.copy()
    rows = [row([1, 2, 2, 5], **{"logprobs": 3, "temperature": 0.5, **kind}) for kind in KINDS]

    with adjusted(values, states_of(rows)) as changed:
        assert np.shares_memory(changed, values)
        assert (changed != before).any(axis=-1).all()
    sample(values, rows)

    assert np.array_equal(values, before)


def test_a_row_that_fails_spoils_no_logits_of_those_who_are_tried_again() -> None:
    values = np.ones((2, VOCAB_SIZE), np.float32)

    with pytest.raises(IndexError):
        sample(values, [row([], logit_bias={3: 2.0}), row([], logit_bias={VOCAB_SIZE: 1.0})])

    assert (values == 1).all()
