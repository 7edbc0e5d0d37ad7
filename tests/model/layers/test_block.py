from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu, silu

from model.config import FeedForwardConfig, NormConfig
from model.layers.attention import FullAttention
from model.layers.block import Block, FeedForward, Residual, Stack
from model.layers.embeddings import Embeddings
from model.layers.norms import LayerNorm
from tests.model.layers.configs import decoder

CONFIG = decoder()


def test_post_norm_normalises_the_sum() -> None:
    residual, x = Residual(replace(CONFIG, norm=NormConfig(placement="post"))), torch.randn(2, 3, 32)

    assert torch.allclose(residual(x, torch.zeros_like), residual.norm(x))


def test_pre_norm_leaves_the_stream_alone() -> None:
    residual, x = Residual(CONFIG), torch.randn(2, 3, 32)

    assert torch.equal(residual(x, torch.zeros_like), x)
    assert torch.allclose(residual(x, lambda h: h), x + residual.norm(x))


def test_a_sandwich_has_norms_before_and_behind_the_sublayer() -> None:
    config = replace(CONFIG, norm=NormConfig("rms", "sandwich", bias=False))
    residual, x = Residual(config), torch.randn(2, 3, 32)
    with torch.no_grad():
        for parameter in residual.output_norm.parameters():
            parameter.normal_()

    assert torch.allclose(residual(x, lambda h: 3 * h), x + residual.output_norm(3 * residual.norm(x)), atol=1e-6)


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich"])
def test_in_training_some_of_a_sublayers_answer_is_dropped_and_nothing_of_the_stream(placement: Any) -> None:
    torch.manual_seed(0)
    residual = Residual(replace(CONFIG, dropout=0.25, norm=NormConfig(placement=placement)))
    residual.norm = residual.output_norm = torch.nn.Identity()
    x, answer = torch.full((2, 400, 32), 5.0), torch.full((2, 400, 32), 3.0)

    added = residual(x, lambda _: answer) - x
    assert set(added.flatten().tolist()) == {0.0, 4.0}  # what is left is as much louder
    assert float((added == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert torch.equal(residual.eval()(x, lambda _: answer), x + answer)


def test_in_training_some_of_the_embeddings_are_dropped() -> None:
    torch.manual_seed(0)
    embeddings = Embeddings(decoder(dropout=0.25))
    ids = torch.arange(50)[None]

    assert float((embeddings(ids) == 0).float().mean()) == pytest.approx(0.25, abs=0.05)
    assert bool((embeddings.eval()(ids) != 0).all())


@pytest.mark.parametrize(
    ("activation", "negative"),
    [("relu", 0.0), ("gelu", -0.1587), ("gelu-tanh", -0.1588), ("quick-gelu", -0.1542), ("silu", -0.2689)],
)
def test_feed_forward_has_the_chosen_activation(activation: str, negative: float) -> None:
    feed_forward = FeedForward(4, FeedForwardConfig(8, activation))  # type: ignore[arg-type]  # they are activations

    assert float(feed_forward.activation(torch.tensor(-1.0))) == pytest.approx(negative, abs=1e-4)
    assert feed_forward(torch.randn(2, 3, 4)).shape == (2, 3, 4)


@pytest.mark.parametrize(("activation", "function"), [("silu", silu), ("gelu", gelu), ("relu", torch.relu)])
def test_a_gate_multiplies_what_is_expanded(activation: str, function: object) -> None:
    config = FeedForwardConfig(8, activation, gated=True, bias=False)  # type: ignore[arg-type]  # they are activations
    feed_forward, x = FeedForward(4, config), torch.randn(2, 3, 4)
    assert feed_forward.gate is not None and callable(function)

    hidden = function(x @ feed_forward.gate.weight.T) * (x @ feed_forward.expand.weight.T)
    assert torch.allclose(feed_forward(x), hidden @ feed_forward.contract.weight.T, atol=1e-6)
    assert all(part.bias is None for part in (feed_forward.gate, feed_forward.expand, feed_forward.contract))


def test_a_block_with_cross_attention_looks_at_the_source() -> None:
    torch.manual_seed(0)
    block, x = Block(CONFIG, 0, is_causal=True, has_cross_attention=True), torch.randn(1, 3, 32)
    sources = torch.randn(2, 1, 5, 32)

    own = FullAttention.within(x)
    one, other = (block(x, own, FullAttention.across(x, source, torch.ones(1, 5))) for source in sources)
    assert not torch.allclose(one, other)


@pytest.mark.parametrize(("placement", "is_there"), [("pre", True), ("sandwich", True), ("post", False)])
def test_a_stack_ends_with_a_norm_unless_its_blocks_do(placement: Any, is_there: bool) -> None:
    stack = Stack(replace(CONFIG, norm=NormConfig(placement=placement)), 1, is_causal=True)

    assert isinstance(stack.final_norm, LayerNorm) == is_there


def test_the_first_block_may_attend_without_a_norm() -> None:
    stack = Stack(replace(CONFIG, norm=NormConfig(skips_first=True)), 2, is_causal=False)

    residuals = [part for part in stack.modules() if isinstance(part, Residual)]
    assert [isinstance(residual.norm, LayerNorm) for residual in residuals] == [False, True, True, True]
