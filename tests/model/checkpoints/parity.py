"""Comparing a model of ours with the one of transformers that it was made of."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.architectures import Transformer
from model.checkpoints.family import HFConfig
from model.checkpoints.files import read_config
from model.checkpoints.read import family_of
from model.checkpoints.weights import open_weights
from tests.checkpoints import convert

TOLERANCE = 1e-4
SEEDS = [*range(5), *(pytest.param(seed, marks=pytest.mark.parity) for seed in range(5, 50))]  # random configurations

errors: dict[str, dict[str, float]] = defaultdict(dict)  # of each family and configuration that was compared


def random_weights(model: Any, seed: int = 1) -> Any:
    """Make all weights random, those of norms and biases too."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "embed_positions" not in name:
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(generator=generator)
    return model.eval()


@torch.no_grad()
def loud_weights(model: Any, seed: int = 1) -> Any:
    """Make all weights random, and so large that scores are far from equal: places and windows matter."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            parameter.copy_(noise * 1.5 / parameter.shape[-1] ** 0.5)
        else:
            parameter.add_(noise * 0.3)
    return model.eval()


def imported(theirs: Any, folder: Path) -> Transformer:
    """Return ours of the files that transformers saves, where tensors have their published names."""
    theirs.save_pretrained(folder)
    config = read_config(folder)
    with open_weights(folder) as tensors:
        return converted_by_family(config, tensors)


def converted(theirs: Any, **config: Any) -> Any:
    """Return ours, with changes to the config.json."""
    given = {**theirs.config.to_dict(), "architectures": [type(theirs).__name__], **config}
    return converted_by_family(given, theirs.state_dict())


def converted_by_family(config: HFConfig, tensors: Mapping[str, Tensor]) -> Transformer:
    """Return ours of a config.json and tensors, read by the family that the config.json names."""
    family = family_of(config)
    assert family is not None
    return convert(family, config, tensors)


def error_of(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference over the largest number."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def assert_equal(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    error = error_of(ours, theirs)
    test, _, configuration = os.environ["PYTEST_CURRENT_TEST"].removesuffix("] (call)").partition("[")
    family = configuration.split("-", maxsplit=1)[0] or test
    errors[family][configuration] = max(error, errors[family].get(configuration, 0.0))
    assert error < TOLERANCE
