from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from model.config import AttentionConfig
from model.layers.attention import FullAttention, MultiHeadAttention, attention_weights, visible
from model.layers.block import Stack
from model.layers.norms import RMSNorm
from model.sizes import SIZES
from tests.model.layers.configs import decoder

CONFIG = decoder()


def attend(layer: MultiHeadAttention, x: Tensor, is_real: Tensor | None = None) -> Tensor:
    attended: Tensor = layer(x, FullAttention.within(x, is_real))
    return attended


def test_attention_is_the_papers_formula() -> None:
    query = key = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]])

    scores = torch.tensor([[1.0, 0.0], [0.0, 4.0]]) / math.sqrt(2)
    assert torch.allclose(attention_weights(query, key)[0, 0], scores.softmax(-1))


def test_the_worked_softmax_of_the_notes() -> None:
    query, keys = torch.ones(1, 1, 1, 1), torch.tensor([0.23, 0.87, 0.70]).view(1, 1, 3, 1)  # their products: the keys

    weights = attention_weights(query, keys)
    # e^0.23, e^0.87 and e^0.70 are 1.2586, 2.3869 and 2.0138; their sum is 5.6593.
    assert torch.allclose(weights, torch.tensor([0.2224, 0.4218, 0.3558]), atol=5e-5)
    assert [round(weight, 2) for weight in weights.flatten().tolist()] == [0.22, 0.42, 0.36]
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert torch.allclose(weights @ values, torch.tensor([0.2224 + 0.3558, 0.4218 + 0.3558]), atol=1e-4)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("window", [None, 4])
def test_attention_by_one_operator_is_the_same(
    is_causal: bool, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = decoder(d_model=32, attention=AttentionConfig(4, num_kv_heads=2, scale=0.3, output_bias=False))
    layer = MultiHeadAttention(config, is_causal=is_causal, window=window)
    x, is_real = torch.randn(2, 7, 32), torch.tensor([[True] * 7, [True] * 5 + [False] * 2])

    expected = attend(layer, x, is_real)
    asked: list[Tensor] = []
    monkeypatch.setattr("model.layers.attention._is_fused", lambda query: not asked.append(query))  # type: ignore[func-returns-value]
    assert torch.allclose(attend(layer, x, is_real)[is_real], expected[is_real], atol=1e-6)
    assert torch.allclose(attend(layer, x), attend(layer, x, torch.ones(2, 7)), atol=1e-6)
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("is_causal", "expected"),
    [
        (False, [[1 / 6, 2 / 6, 3 / 6], [2 / 4, 1 / 4, 1 / 4], [1 / 3, 1 / 3, 1 / 3]]),
        (True, [[1, 0, 0], [2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3]]),
    ],
)
def test_a_layer_worked_by_hand(is_causal: bool, expected: list[list[float]]) -> None:
    layer = MultiHeadAttention(decoder(d_model=4, attention=AttentionConfig(1, output_bias=False)), is_causal=is_causal)
    scores = torch.tensor([[1.0, 2.0, 3.0], [2.0, 1.0, 1.0], [5.0, 5.0, 5.0]]).log()  # of words with words
    with torch.no_grad():
        for part in (layer.query, layer.key, layer.value, layer.output):
            part.weight.copy_(torch.eye(4))
            if part.bias is not None:
                part.bias.zero_()
        layer.query.weight.mul_(math.sqrt(4))  # which the division by √D takes back
        layer.key.weight[:3, :3] = scores

    words = torch.eye(3, 4)[None]  # each its own feature, so what a word becomes is how much it looked at each
    assert torch.allclose(attend(layer, words)[0, :, :3], torch.tensor(expected), atol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_equals_torchs_own(is_causal: bool) -> None:
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(CONFIG, is_causal=is_causal), torch.randn(2, 7, 32)

    query, key, value = (layer.split(part(x)) for part in (layer.query, layer.key, layer.value))
    torchs = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
    assert torch.allclose(attend(layer, x), layer.output(layer.merge(torchs)), atol=1e-6)


def test_grouped_heads_share_their_keys() -> None:
    query, key = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 3, 8)

    grouped = attention_weights(query, key)
    for head in range(4):
        assert torch.allclose(grouped[:, [head]], attention_weights(query[:, [head]], key[:, [head // 2]]), atol=1e-6)


def test_a_causal_mask_hides_the_future() -> None:
    mask = visible(torch.arange(4), torch.arange(4), is_causal=True)

    weights = attention_weights(torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8), mask)
    assert torch.equal(weights.triu(1), torch.zeros(1, 1, 4, 4))
    assert torch.allclose(weights.sum(-1), torch.ones(1, 1, 4))


def test_padding_is_not_looked_at() -> None:
    layer, x = MultiHeadAttention(CONFIG), torch.randn(1, 5, 32)
    is_real = torch.tensor([[1, 1, 1, 0, 0]])

    assert torch.allclose(attend(layer, x, is_real)[:, :3], attend(layer, x[:, :3]), atol=1e-6)


@pytest.mark.parametrize(
    ("is_causal", "window", "seen"),
    [
        (True, 2, {1: [0, 1], 4: [3, 4]}),  # itself and the one before: Gemma 3, GPT-Neo
        (False, 4, {0: [0, 1, 2], 4: [2, 3, 4, 5]}),  # two on each side: ModernBERT
        (False, None, {3: [0, 1, 2, 3, 4, 5]}),
    ],
)
def test_a_window_shows_the_neighbours_alone(is_causal: bool, window: int | None, seen: dict[int, list[int]]) -> None:
    mask = visible(torch.arange(6), torch.arange(6), is_causal=is_causal, window=window)

    for query, keys in seen.items():
        assert mask[query].nonzero().flatten().tolist() == keys


@pytest.mark.parametrize("is_cross", [False, True])
def test_multi_head_attention_equals_torchs_own_with_the_same_weights(is_cross: bool) -> None:
    torch.manual_seed(0)
    ours, torchs = MultiHeadAttention(CONFIG), nn.MultiheadAttention(32, 4, batch_first=True)
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        torchs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        torchs.out_proj.weight.copy_(ours.output.weight)
        torchs.out_proj.bias.copy_(ours.output.bias)
    x = torch.randn(2, 5, 32)
    source = torch.randn(2, 7, 32) if is_cross else x

    expected, _ = torchs(x, source, source)
    assert torch.allclose(ours(x, FullAttention.across(x, source, torch.ones(2, source.shape[1]))), expected, atol=1e-6)


def test_eight_heads_of_512_are_64_wide() -> None:
    attention = MultiHeadAttention(SIZES["transformer-base"])
    key, value = attention.keys_and_values(torch.randn(1, 3, 512))

    assert attention.split(key).shape == attention.split(value).shape == (1, 8, 3, 64)


def test_heads_may_be_wider_than_their_share() -> None:
    layer = MultiHeadAttention(decoder(attention=AttentionConfig(4, num_kv_heads=2, head_dim=12)))

    assert (layer.query.out_features, layer.key.out_features, layer.output.in_features) == (48, 24, 48)
    assert attend(layer, torch.randn(1, 3, 32)).shape == (1, 3, 32)


@pytest.mark.parametrize(("qkv", "output"), [(True, False), (False, True), (False, False)])
def test_biases_are_chosen_for_inputs_and_output_apart(qkv: bool, output: bool) -> None:
    layer = MultiHeadAttention(decoder(attention=AttentionConfig(4, qkv_bias=qkv, output_bias=output)))

    assert all((part.bias is not None) == qkv for part in (layer.query, layer.key, layer.value))
    assert (layer.output.bias is not None) == output


def test_scores_are_scaled_as_told() -> None:
    torch.manual_seed(0)
    usual = MultiHeadAttention(CONFIG)
    unscaled = MultiHeadAttention(decoder(attention=AttentionConfig(4, scale=1.0)))
    unscaled.load_state_dict(usual.state_dict())
    with torch.no_grad():
        for parameter in usual.query.parameters():
            parameter.mul_(math.sqrt(8))
    x = torch.randn(2, 5, 32)

    assert torch.allclose(attend(usual, x), attend(unscaled, x), atol=1e-5)


def test_queries_and_keys_of_each_head_are_normalised() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(decoder(attention=AttentionConfig(4, qk_norm=True)))
    assert isinstance(layer.query_norm, RMSNorm) and isinstance(layer.key_norm, RMSNorm)
    with torch.no_grad():
        layer.query_norm.weight.normal_()
        layer.key_norm.weight.normal_()
    x = torch.randn(2, 5, 32)

    def normalised(heads: Tensor, weight: Tensor) -> Tensor:
        return heads / (heads.pow(2).mean(-1, keepdim=True) + CONFIG.norm.epsilon).sqrt() * weight

    query, key, value = (layer.split(part(x)) for part in (layer.query, layer.key, layer.value))
    weights = attention_weights(normalised(query, layer.query_norm.weight), normalised(key, layer.key_norm.weight))
    assert torch.allclose(attend(layer, x), layer.output(layer.merge(weights @ value)), atol=1e-6)


def test_only_the_layers_named_have_a_window() -> None:
    config = replace(CONFIG, attention=AttentionConfig(4, window=3, local_layers=(1,)))

    layers = [part for part in Stack(config, 2, is_causal=True).modules() if isinstance(part, MultiHeadAttention)]
    assert [layer.window for layer in layers] == [None, 3]
