from __future__ import annotations

import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from model.config import AttentionConfig, PositionsConfig, RotaryScaling
from model.layers.rotary import Rotary, rotaries, rotary_frequencies
from tests.model.layers.configs import decoder

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize("scaling", [None, RotaryScaling(8.0, 1.0, 4.0, 32)])
def test_rotation_is_that_of_transformers_llama(scaling: RotaryScaling | None) -> None:
    torch.manual_seed(0)
    parameters = {**({"rope_type": "default"} if scaling is None else LLAMA3), "rope_theta": 500.0}
    config = transformers.LlamaConfig(
        hidden_size=32, num_attention_heads=2, max_position_embeddings=256, rope_parameters=parameters
    )
    query, key, positions = torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16), torch.arange(100, 109)

    cos, sin = LlamaRotaryEmbedding(config)(query, positions[None])
    expected = apply_rotary_pos_emb(query, key, cos, sin)
    rotary = Rotary(256, 16, 500.0, scaling)
    for ours, theirs in zip((rotary(query, positions), rotary(key, positions)), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_scores_depend_on_the_distance_alone() -> None:
    rotary, query, key = Rotary(64, 8, 10000.0), torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def score(query_at: int, key_at: int) -> float:
        turned = rotary(query, torch.tensor([query_at])) * rotary(key, torch.tensor([key_at]))
        return float(turned.sum())

    assert score(5, 3) == pytest.approx(score(42, 40), abs=1e-4)
    assert float(rotary(query, torch.tensor([17])).norm()) == pytest.approx(float(query.norm()), abs=1e-5)


def test_fast_waves_keep_their_pace_and_slow_ones_are_slowed_by_the_factor() -> None:
    plain, scaled = rotary_frequencies(16, 1e6), rotary_frequencies(16, 1e6, RotaryScaling(8.0, 1.0, 4.0, 32))

    assert scaled[0] == plain[0]
    assert torch.allclose(scaled[-4:], plain[-4:] / 8)


def test_what_is_wider_than_the_rotation_stays() -> None:
    x = torch.randn(1, 2, 5, 8)
    turned = Rotary(16, 4, 10000.0)(x, torch.arange(5))

    assert torch.equal(turned[..., 4:], x[..., 4:])
    assert not torch.allclose(turned[..., 1:, :4], x[..., 1:, :4])


def test_as_much_of_a_head_turns_as_the_configuration_says() -> None:
    whole, half = (rotaries(decoder(positions=PositionsConfig("rotary", rotary_dim=dim)))[0] for dim in (None, 4))

    assert whole is not None and half is not None
    assert torch.equal(whole.cos, Rotary(64, 8, 1e4).cos)
    assert torch.equal(half.cos, Rotary(64, 4, 1e4).cos)


def test_local_layers_turn_by_their_own_base_without_scaling() -> None:
    positions = PositionsConfig("rotary", base=1e6, local_base=1e4, scaling=RotaryScaling(8.0, 1.0, 4.0, 32))
    config = decoder(attention=AttentionConfig(4, window=3, local_layers=(1,)), positions=positions)

    everywhere, local = rotaries(config)
    assert everywhere is not None and local is not None
    assert torch.equal(everywhere.cos, Rotary(64, 8, 1e6, positions.scaling).cos)
    assert torch.equal(local.cos, Rotary(64, 8, 1e4).cos)


def test_local_layers_without_a_base_turn_by_that_of_the_others() -> None:
    attention = AttentionConfig(4, window=3, local_layers=(1,))
    _, local = rotaries(decoder(attention=attention, positions=PositionsConfig("rotary", base=1e6)))

    assert local is not None and torch.equal(local.cos, Rotary(64, 8, 1e6).cos)
