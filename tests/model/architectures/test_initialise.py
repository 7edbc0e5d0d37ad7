from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.architectures import build
from model.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from model.sizes import SIZES


def weights(config: TransformerConfig) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {name: parameter.detach() for name, parameter in build(config).named_parameters()}


def narrow(name: str, d_model: int, d_ff: int) -> TransformerConfig:
    """Return a named size, small enough to draw."""
    attention, feed_forward = AttentionConfig(4), FeedForwardConfig(d_ff)
    return replace(SIZES[name], vocab_size=500, d_model=d_model, attention=attention, feed_forward=feed_forward)


@pytest.mark.parametrize("name", ["gpt2", "bert-base"])
def test_bert_and_gpt_are_drawn_with_a_deviation_of_a_fiftieth(name: str) -> None:
    drawn = weights(narrow(name, 128, 512))

    for path, weight in drawn.items():
        if weight.dim() == 2 and weight.numel() > 10_000:
            assert float(weight.std()) == pytest.approx(0.02, rel=0.02), path
            assert abs(float(weight.mean())) < 0.001
        elif path.endswith("bias"):
            assert not weight.any(), path
        elif "norm" in path:
            assert bool((weight == 1).all()), path


def test_a_translator_is_drawn_after_glorot_and_its_words_by_their_width() -> None:
    drawn = weights(replace(narrow("transformer-base", 128, 512), num_encoder_layers=1, num_decoder_layers=1))

    # Words have variance 1/128, and 1 once they are multiplied by √128.
    assert float(drawn["embeddings.words.weight"].std()) == pytest.approx(1 / math.sqrt(128), rel=0.02)
    for path, largest in (
        ("encoder.blocks.0.self_attention.query.weight", math.sqrt(6 / (128 + 128))),  # 0.1531
        ("encoder.blocks.0.feed_forward.expand.weight", math.sqrt(6 / (128 + 512))),  # 0.0968
        ("decoder.blocks.0.cross_attention.value.weight", math.sqrt(6 / (128 + 128))),
    ):
        assert largest * 0.99 < float(drawn[path].abs().max()) <= largest
        assert float(drawn[path].std()) == pytest.approx(largest / math.sqrt(3), rel=0.02)  # as of what is uniform


def test_what_ends_a_branch_of_a_vision_transformer_is_quieter_by_the_root_of_the_branches() -> None:
    drawn = weights(SIZES["mini-vision"])  # 128 wide; five blocks are ten branches

    for path, deviation in (
        ("self_attention.query", 1 / math.sqrt(128)),
        ("self_attention.output", 1 / math.sqrt(128 * 10)),
        ("feed_forward.expand", 1 / math.sqrt(128)),
        ("feed_forward.contract", 1 / math.sqrt(512 * 10)),
    ):
        weight = drawn[f"encoder.blocks.3.{path}.weight"]
        assert float(weight.std()) == pytest.approx(deviation, rel=0.03)


def test_a_new_model_prefers_no_word() -> None:
    torch.manual_seed(0)
    model = build(narrow("gpt2", 128, 512)).eval()

    with torch.no_grad():
        losses = -model(torch.arange(20)[None]).log_softmax(-1)
    assert float(losses.mean()) == pytest.approx(math.log(500), rel=0.05)  # what a guess among 500 costs
