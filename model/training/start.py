"""Beginning with what another run has learned."""

from __future__ import annotations

import copy

import torch

from model.architectures import Transformer
from model.config import TransformerConfig
from model.training.errors import RunError

OUTPUT = "head.output."  # what the names of the weights begin with that a label has each of its own


def begin_with(model: Transformer, other: Transformer, *, has_its_labels: bool = True) -> None:
    """Take another model's weights but those of a head that it has not, or that has other labels."""
    ours, theirs = model.state_dict(), other.state_dict()
    for name in ours.keys() & theirs.keys():
        if ours[name].shape == theirs[name].shape and (has_its_labels or not name.startswith(OUTPUT)):
            ours[name].copy_(theirs[name])


def check_start(config: TransformerConfig, other: TransformerConfig) -> None:
    """Refuse weights that are not of the same sizes but for the head; raises `RunError`."""
    for field, (ours, theirs) in config.differences(other).items():
        if field not in {"dropout", "vocab_size"} and not field.startswith("head."):
            raise RunError(f"the other run's weights do not fit: their {field} is {theirs}, not {ours}")


@torch.no_grad()
def mixed(model: Transformer, other: Transformer, share: float) -> Transformer:
    """Return a model whose weights lie between those of two: (1 − share) · `model` + share · `other`.

    Between weights before and after learning on there are often some that are better than both at what was learned
    first and at what came then (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").
    """
    between = copy.deepcopy(model)
    torch._foreach_lerp_(list(between.parameters()), list(other.parameters()), share)
    return between
