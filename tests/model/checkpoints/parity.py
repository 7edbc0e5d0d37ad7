"""Comparing a model of ours with the one of transformers that it was made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from model.checkpoints.family import convert
from model.checkpoints.read import FAMILIES

TOLERANCE = 1e-4


def random_weights(model: Any, seed: int = 1) -> Any:
    """Make all weights random, those of norms and biases too."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "embed_positions" not in name:
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(generator=generator)
    return model.eval()


def converted(theirs: Any, **config: Any) -> Any:
    """Return ours, with changes to the config.json."""
    given = {**theirs.config.to_dict(), **config}
    return convert(FAMILIES[given["model_type"]], given, theirs.state_dict())


def error_of(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference over the largest number."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def assert_equal(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert error_of(ours, theirs) < TOLERANCE
