"""AdamW's parameter groups, and the learning rate over the steps."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import Any

from torch import nn

_BLOCK = re.compile(r"(?:encoder|decoder)\.blocks\.(\d+)\.")
_INPUT = ("embeddings.", "target_embeddings.", "patches.", "positions.", "cls")


def learning_rate_factor(step: int, warmup_steps: int, total_steps: int) -> float:
    """Return what the peak rate is multiplied by: a linear warm-up, then half a cosine down to 2 %."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def parameter_groups(model: nn.Module, weight_decay: float, layer_decay: float) -> list[dict[str, Any]]:
    """Decay matrices only; a group's `scale` multiplies the learning rate.

    The scale is 1 for the head, `layer_decay` for the last block, its square for the one before, and so on down to the
    embeddings: what pretraining learned first moves least (Howard and Ruder 2018; Clark et al. 2020).
    """
    names = [name for name, _ in model.named_parameters()]
    blocks = 1 + max((int(found[1]) for found in map(_BLOCK.search, names) if found), default=-1)
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        scale = layer_decay ** (blocks + 1 - _depth(name, blocks))
        groups[weight_decay if parameter.dim() >= 2 else 0.0, scale].append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "scale": scale} for (decay, scale), parameters in groups.items()
    ]


def _depth(name: str, blocks: int) -> int:
    """Return 0 for what the input meets first, 1 for the first block, `blocks` + 1 for the head."""
    found = _BLOCK.search(name)
    if found:
        return int(found[1]) + 1
    return 0 if name.startswith(_INPUT) else blocks + 1
