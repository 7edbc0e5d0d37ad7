"""Layer normalisation (Ba et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """Give every position mean 0 and variance 1 over its features, then scale and shift them.

    y = (x − mean) / √(variance + ε) · weight + bias, the variance taken over all d_model features (not d_model − 1).
    """

    def __init__(self, d_model: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        # The functional form is this very formula, fused; tests hold it to the worked example.
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)
