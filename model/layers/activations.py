"""The non-linearities of feed-forward layers and heads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from model.config import Activation


class QuickGELU(nn.Module):
    """x · sigmoid(1.702 x), a cheaper gelu (Hendrycks and Gimpel 2016; CLIP)."""

    def forward(self, x: Tensor) -> Tensor:
        """Map each number."""
        return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),  # GPT-2's
    "quick-gelu": QuickGELU,
    "silu": nn.SiLU,  # also called swish
    "tanh": nn.Tanh,
    "none": nn.Identity,  # of vectors that a linear map makes
}
