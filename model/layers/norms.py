"""Layer normalisation (Ba et al. 2016), and that by the root mean square (Zhang and Sennrich 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.config import NormConfig


class LayerNorm(nn.Module):
    """Give every position mean 0 and variance 1 over its features, then scale and shift them.

    y = (x − mean) / √(variance + ε) · weight + bias, the variance taken over all features (not one less).
    """

    def __init__(self, width: int, epsilon: float = 1e-5, *, has_bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if has_bias else None
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        # The functional form is this very formula, fused; tests hold it to the worked example.
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RMSNorm(nn.Module):
    """Give every position the root mean square 1 over its features, then scale them.

    y = x / √(mean of x² + ε) · weight.
    """

    def __init__(self, width: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        # The functional form is this very formula, fused, and of halves in full precision.
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


def make_norm(config: NormConfig, width: int) -> LayerNorm | RMSNorm:
    """Return the norm that a configuration asks for."""
    if config.kind == "rms":
        return RMSNorm(width, config.epsilon)
    return LayerNorm(width, config.epsilon, has_bias=config.bias)
