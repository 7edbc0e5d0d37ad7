from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from model.architectures import DecoderLM, TextEncoder
from model.config import AttentionConfig, FeedForwardConfig, PositionsConfig, RelativeConfig, TransformerConfig
from model.export.prepare import padded_width, prepared
from model.sizes import SIZES, default_head
from tests.conftest import random_model

DECODER = TransformerConfig(
    "decoder",
    vocab_size=50,
    d_model=52,
    num_decoder_layers=2,
    max_positions=32,
    attention=AttentionConfig(2, num_kv_heads=1, qk_norm=True),
    feed_forward=FeedForwardConfig(24),
)
IDS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("positions", "head_dim", "width"),
    [
        (PositionsConfig(), 26, 32),
        (PositionsConfig("rotary"), 26, 32),  # halves of 13, so of 16
        (PositionsConfig("rotary"), 18, 32),
        (PositionsConfig("rotary", rotary_dim=10), 21, 32),  # halves of 5, so of 8, and 11 that do not turn
        (PositionsConfig("rotary"), 48, 48),
    ],
)
def test_padded_heads_answer_alike(positions: PositionsConfig, head_dim: int, width: int) -> None:
    attention = replace(DECODER.attention, head_dim=head_dim)
    model = random_model(replace(DECODER, positions=positions, attention=attention))
    assert isinstance(model, DecoderLM)
    padded = prepared(model)
    assert isinstance(padded, DecoderLM)

    assert padded_width(model.config) == width
    assert padded.state_dict()["decoder.blocks.0.self_attention.query.weight"].shape == (2 * width, 52)
    with torch.no_grad():
        expected, answer = model(IDS), padded(IDS)
    assert (answer - expected).abs().max() < 1e-5 * expected.abs().max()


def test_a_model_that_fits_is_not_copied() -> None:
    model = random_model(replace(DECODER, d_model=48, attention=AttentionConfig(2)))

    assert prepared(model) is model


def test_what_hangs_on_weights_alone_is_computed_once() -> None:
    attention = AttentionConfig(4, relative=RelativeConfig("disentangled", 8, 32))
    layers: dict[str, Any] = {"num_decoder_layers": 0, "num_encoder_layers": 2}
    parts: dict[str, Any] = {
        "attention": attention,
        "head": default_head("classify", 2),
        "positions": PositionsConfig("none"),
    }
    config = replace(DECODER, architecture="encoder", **layers, **parts)
    model = random_model(config)
    assert isinstance(model, TextEncoder)
    fixed, mask = prepared(model), torch.ones_like(IDS)

    assert "position_key" in {name.rsplit(".")[-1] for name, _ in fixed.named_buffers()}
    with torch.no_grad():
        assert torch.allclose(model(IDS, mask), fixed(IDS, mask), atol=1e-5)


def test_bert_small_has_heads_of_26_and_a_cache_of_32() -> None:
    assert SIZES["bert-small"].head_dim == 26
    assert padded_width(SIZES["bert-small"]) == 32
