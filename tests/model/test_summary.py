from __future__ import annotations

import pytest
import torch

from model.architectures import build
from model.sizes import SIZES
from model.summary import summarise


@pytest.mark.parametrize(
    "name",
    [
        *("bert-small", "deberta-v3-small", "modernbert-base", "minilm-l6", "gpt2", "gemma-3-270m"),
        *("t5-small", "bart-base", "opus-mt", "deit-tiny"),
    ],
)
def test_every_kind_of_model_has_a_summary(name: str) -> None:
    layers, total = summarise(SIZES[name], rows=2, length=5)

    with torch.device("meta"):
        model = build(SIZES[name])
    assert total == sum(parameter.numel() for parameter in model.parameters())
    assert layers[-1].path == "logits" and layers[-1].shape[0] == 2
    counts = {layer.path: layer.parameters for layer in layers}
    stack = "encoder" if "encoder" in counts else "decoder"
    assert 0 < counts[f"{stack}.blocks.0"] < counts[stack] < total
