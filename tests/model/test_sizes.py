from __future__ import annotations

import pytest
import torch

from model.architectures import build
from model.sizes import SIZES


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("distilgpt2", 81_912_576),
        ("llama-3.2-1b", 1_235_814_400),
        ("smollm2-135m", 134_515_008),
        ("smollm2-360m", 361_821_120),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-0.6b", 596_049_920),
        ("gemma-3-270m", 268_098_176),
        ("gemma-3-1b", 999_885_952),
    ],
)
def test_a_published_size_has_the_published_number_of_parameters(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = build(SIZES[name])

    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
