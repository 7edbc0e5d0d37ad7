from __future__ import annotations

import pytest

from model.architectures import build
from model.training.optimizer import learning_rate_factor, parameter_groups
from tests.conftest import TINY


def test_the_learning_rate_warms_up_and_falls() -> None:
    factors = [learning_rate_factor(step, 10, 100) for step in range(101)]

    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == pytest.approx(1.0) and factors.index(max(factors)) in {9, 10}
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[100] == pytest.approx(0.02)


def test_deeper_layers_learn_more_slowly() -> None:
    model = build(TINY["sentiment"])
    scale_of = {
        id(parameter): group["scale"] for group in parameter_groups(model, 0.01, 0.5) for parameter in group["params"]
    }
    scales = {name: scale_of[id(parameter)] for name, parameter in model.named_parameters()}

    assert scales["head.output.weight"] == scales["encoder.final_norm.weight"] == 1.0
    assert scales["encoder.blocks.1.self_attention.query.weight"] == 0.5
    assert scales["encoder.blocks.0.feed_forward.expand.bias"] == 0.25
    assert scales["embeddings.words.weight"] == 0.125


def test_only_matrices_decay() -> None:
    for group in parameter_groups(build(TINY["stories"]), 0.1, 1.0):
        assert group["weight_decay"] == (0.1 if group["params"][0].dim() >= 2 else 0.0)
        assert len({parameter.dim() >= 2 for parameter in group["params"]}) == 1
