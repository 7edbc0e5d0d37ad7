from __future__ import annotations

import pytest
import torch

from model.architectures import build
from model.sizes import SIZES


def count(name: str) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(SIZES[name]).parameters())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("distilbert", 66_362_880 + 622_650),  # with the head of its pretraining
        ("modernbert-base", 149_655_232),
        ("modernbert-large", 395_881_664),
        ("deberta-v3-base", 183_831_552 + 720_228),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("distilgpt2", 81_912_576),
        ("gpt-neo-125m", 125_198_592),
        ("tinystories-1m", 3_745_984),
        ("tinystories-33m", 68_514_048),
        ("llama-3.2-1b", 1_235_814_400),
        ("smollm2-135m", 134_515_008),
        ("smollm2-360m", 361_821_120),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-0.6b", 596_049_920),
        ("gemma-3-270m", 268_098_176),
        ("gemma-3-1b", 999_885_952),
        ("vit-base", 86_567_656),
        ("vit-large", 304_326_632),
        ("deit-tiny", 5_910_800),
        ("deit-small", 22_436_432),
        ("deit-base", 87_338_192),
        ("t5-small", 60_506_624),
        ("t5-base", 222_903_552),
        ("flan-t5-small", 76_961_152),
        ("flan-t5-base", 247_577_856),
        ("mt5-small", 300_176_768),
        ("m2m100-418m", 483_905_536),
        ("nllb-200-distilled-600m", 615_073_792),
    ],
)
def test_a_published_size_has_the_published_number_of_parameters(name: str, parameters: int) -> None:
    assert count(name) == parameters


@pytest.mark.parametrize(
    ("name", "parameters", "position_rows"),
    [
        ("opus-mt", 74_410_496, 2 * 512),  # waves, which are computed here
        ("pegasus-large", 570_797_056, 2 * 1024),
        ("bart-base", 139_420_416, 4),  # rows that no token has
        ("bart-large", 406_291_456, 4),
        ("mbart-large-50", 610_879_488, 4),
    ],
)
def test_a_published_size_lacks_positions_and_counts_the_outputs_bias(
    name: str, parameters: int, position_rows: int
) -> None:
    config = SIZES[name]
    expected = parameters - position_rows * config.d_model + config.vocab_size

    assert count(name) == expected


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("roberta-base", 124_697_433), ("xlm-roberta-base", 278_295_186), ("camembert-base", 110_655_493)],
)
def test_a_published_roberta_has_two_positions_that_no_token_has(name: str, parameters: int) -> None:
    assert count(name) == parameters - 2 * SIZES[name].d_model


def test_minilm_lacks_the_pooler_that_its_vectors_do_without() -> None:
    assert count("minilm-l6") == 22_713_216 - (384 * 384 + 384)
