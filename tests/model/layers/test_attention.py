from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from model.layers.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)


def test_attention_is_the_papers_formula() -> None:
    query, key, value = (torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]]) for _ in range(3))

    scores = torch.tensor([[1.0, 0.0], [0.0, 4.0]]) / math.sqrt(2)
    expected = scores.softmax(-1) @ value[0, 0]
    assert torch.allclose(scaled_dot_product_attention(query, key, value)[0, 0], expected)


def test_attention_equals_torchs_own() -> None:
    query, key, value = (torch.randn(2, 4, 7, 16) for _ in range(3))
    mask = causal_mask(7)

    ours = scaled_dot_product_attention(query, key, value, mask)
    torchs = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert torch.allclose(ours, torchs, atol=1e-6)


def test_grouped_heads_share_their_keys_and_values() -> None:
    query, key, value = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8)

    grouped = scaled_dot_product_attention(query, key, value)
    for head in range(4):
        alone = scaled_dot_product_attention(query[:, [head]], key[:, [head // 2]], value[:, [head // 2]])
        assert torch.allclose(grouped[:, [head]], alone, atol=1e-6)


def test_a_causal_mask_hides_the_future() -> None:
    weights = attention_weights(torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8), causal_mask(4))

    assert torch.equal(weights.triu(1), torch.zeros(1, 1, 4, 4))
    assert torch.allclose(weights.sum(-1), torch.ones(1, 1, 4))


def test_a_padding_mask_hides_the_padding() -> None:
    mask = padding_mask(torch.tensor([[1, 1, 0]]))

    weights = attention_weights(torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8), mask)
    assert torch.equal(weights[..., 2], torch.zeros(1, 2, 3))


@pytest.mark.parametrize("is_cross", [False, True])
def test_multi_head_attention_equals_torchs_own_with_the_same_weights(is_cross: bool) -> None:
    torch.manual_seed(0)
    ours, torchs = MultiHeadAttention(32, 4, 4), nn.MultiheadAttention(32, 4, batch_first=True)
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        torchs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        torchs.out_proj.weight.copy_(ours.output.weight)
        torchs.out_proj.bias.copy_(ours.output.bias)
    x = torch.randn(2, 5, 32)
    source = torch.randn(2, 7, 32) if is_cross else x

    expected, _ = torchs(x, source, source)
    assert torch.allclose(ours(x, source if is_cross else None), expected, atol=1e-6)


def test_eight_heads_of_512_are_64_wide() -> None:
    attention = MultiHeadAttention(512, 8, 8)
    key, value = attention.project_source(torch.randn(1, 3, 512))

    assert key.shape == value.shape == (1, 8, 3, 64)
