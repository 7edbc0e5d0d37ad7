from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from model.layers.block import Block, Residual
from model.layers.feedforward import FeedForward
from tests.conftest import TINY

CONFIG = replace(TINY["translate"], dropout=0.0)


def test_post_norm_normalises_the_sum() -> None:
    residual, x = Residual(replace(CONFIG, norm_placement="post")), torch.randn(2, 3, 32)

    assert torch.allclose(residual(x, torch.zeros_like), residual.norm(x))


def test_pre_norm_leaves_the_stream_alone() -> None:
    residual, x = Residual(replace(CONFIG, norm_placement="pre")), torch.randn(2, 3, 32)

    assert torch.equal(residual(x, torch.zeros_like), x)
    assert torch.allclose(residual(x, lambda h: h), x + residual.norm(x))


@pytest.mark.parametrize(("activation", "negative"), [("relu", 0.0), ("gelu", -0.1587)])
def test_feed_forward_has_the_chosen_activation(activation: str, negative: float) -> None:
    feed_forward = FeedForward(4, 8, activation)  # type: ignore[arg-type]  # the parameters are activations

    assert float(feed_forward.activation(torch.tensor(-1.0))) == pytest.approx(negative, abs=1e-4)
    assert feed_forward(torch.randn(2, 3, 4)).shape == (2, 3, 4)


def test_a_block_with_cross_attention_looks_at_the_source() -> None:
    torch.manual_seed(0)
    block, x = Block(CONFIG, has_cross_attention=True), torch.randn(1, 3, 32)

    one = block(x, source=torch.randn(1, 5, 32))
    other = block(x, source=torch.randn(1, 5, 32))
    assert not torch.allclose(one, other)
