"""What changes the weights: AdamW and, for the blocks' matrices, Muon; and the learning rate over the steps."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from model.training.half import computes_in_halves

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


class Optimizer(Protocol):
    """What the loop asks of an optimizer; torch's are such."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Weights that share their settings."""

    def step(self) -> object:
        """Change the weights by their gradients."""

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept."""


def optimizer_of(
    model: nn.Module, learning_rate: float, weight_decay: float, layer_decay: float, muon_learning_rate: float | None
) -> Optimizer:
    """Return AdamW for all weights or, with a rate for them, Muon for the blocks' matrices and AdamW for the rest.

    A group's `scale` multiplies the learning rate, by which the loop sets its `lr`.
    """
    groups = parameter_groups(model, weight_decay, layer_decay)
    if muon_learning_rate is None:
        return _adamw(groups, learning_rate)
    matrices = {id(weight) for name, weight in model.named_parameters() if _BLOCK.search(name) and weight.dim() == 2}
    scale = muon_learning_rate / learning_rate
    by_muon = [{**_part(group, matrices, is_in=True), "scale": group["scale"] * scale} for group in groups]
    by_adamw = [_part(group, matrices, is_in=False) for group in groups]
    filled = [[group for group in part if group["params"]] for part in (by_muon, by_adamw)]
    return CombinedOptimizer(Muon(filled[0], learning_rate), _adamw(filled[1], learning_rate))


def _adamw(groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=True)


def _part(group: dict[str, Any], matrices: set[int], *, is_in: bool) -> dict[str, Any]:
    return {**group, "params": [each for each in group["params"] if (id(each) in matrices) == is_in]}


class Muon(torch.optim.Optimizer):
    """Moves matrices along their momentum with all its singular values made equal.

    Gradients of a transformer's matrices have few large directions; so the others are learned, too (Jordan et al. 2024,
    "Muon: An optimizer for hidden layers in neural networks"). A step is as loud as one of AdamW, so learning rates and
    decay are of the same size (Liu et al. 2025, "Muon is scalable for LLM training").
    """

    def __init__(self, groups: Iterable[dict[str, Any]], learning_rate: float, momentum: float = 0.95) -> None:
        super().__init__(groups, {"lr": learning_rate, "weight_decay": 0.0})
        self.momentum = momentum

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is ever given
        """Change the weights by their gradients."""
        groups = [(weight, group) for group in self.param_groups for weight in group["params"]]
        found = [(weight, weight.grad, group) for weight, group in groups if weight.grad is not None]
        if not found:
            return
        weights = [weight for weight, _, _ in found]
        changes = self._ahead(weights, [gradient for _, gradient, _ in found])
        by_shape: dict[torch.Size, list[int]] = defaultdict(list)
        for place, change in enumerate(changes):
            by_shape[change.shape].append(place)
        # A GPU waits for every operator, so there is one for all matrices, or all of a shape, whatever their rates.
        for places in by_shape.values():
            made = orthogonalised(torch.stack([changes[place] for place in places]))
            for place, change in zip(places, made, strict=True):
                changes[place] = change
        torch._foreach_mul_(weights, [1 - group["lr"] * group["weight_decay"] for _, _, group in found])
        loud = [ADAMW_RMS * math.sqrt(max(weight.shape)) * group["lr"] for weight, _, group in found]
        torch._foreach_sub_(weights, torch._foreach_mul(changes, loud))

    def _ahead(self, weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Return the momentum of each weight a step ahead (Nesterov), having taken its gradient in."""
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        torch._foreach_lerp_(momenta, gradients, 1 - self.momentum)
        return list(torch._foreach_lerp(gradients, momenta, self.momentum))


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return the nearest matrices whose singular values are all about 1, of (N, rows, columns).

    Five steps of Newton and Schulz with Jordan's coefficients, which leave values between 0.7 and 1.2; in bfloat16,
    where that is faster, as no more is asked of them.
    """
    is_tall = matrices.size(-2) > matrices.size(-1)
    x = matrices.bfloat16() if computes_in_halves(matrices.device.type) else matrices.float()
    x = x.mT if is_tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        squared = x @ x.mT
        factor = torch.baddbmm(squared, squared, squared, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, factor, x, beta=3.4445)
    return (x.mT if is_tall else x).to(matrices.dtype)


ADAMW_RMS = 0.2  # the root mean square of what AdamW moves weights by, over its learning rate


class CombinedOptimizer:
    """Two optimizers of the same model's weights, as one."""

    def __init__(self, first: torch.optim.Optimizer, second: torch.optim.Optimizer) -> None:
        self._parts = (first, second)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of both."""
        return [group for part in self._parts for group in part.param_groups]

    def step(self) -> None:
        """Change the weights by their gradients."""
        for part in self._parts:
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self._parts:
            part.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {str(number): part.state_dict() for number, part in enumerate(self._parts)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept."""
        for number, part in enumerate(self._parts):
            part.load_state_dict(state_dict[str(number)])
