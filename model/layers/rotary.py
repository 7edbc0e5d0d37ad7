"""Rotary positions: queries and keys turn with their position (Su et al. 2021, RoFormer, section 3.2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import RotaryScaling, TransformerConfig


def rotary_frequencies(dim: int, base: float, scaling: RotaryScaling | None = None) -> Tensor:
    """Return by how much each pair of features turns at a position, base^(−2i/dim), (dim / 2,)."""
    # Rounded as where the weights were learned: at position 10,000 another last bit is an angle of 0.001.
    frequencies = 1.0 / base ** (torch.arange(0, dim, 2) / dim)
    return frequencies if scaling is None else _scaled(frequencies, scaling)


def _scaled(frequencies: Tensor, scaling: RotaryScaling) -> Tensor:
    """Slow down all waves, or those that turn so slowly that pretraining has not seen them turn round (Llama 3)."""
    low, high, original = scaling.low_frequency_factor, scaling.high_frequency_factor, scaling.original_max_positions
    if low is None or high is None or original is None:
        return frequencies / scaling.factor
    turns = original * frequencies / (2 * math.pi)  # in a text as long as pretraining's
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / scaling.factor)


class Rotary(nn.Module):
    """Tables of cosines and sines, and the rotation by them; the first half of a head's features pairs with the second.

    (x₁, x₂) at position p becomes (x₁ cos pθ − x₂ sin pθ, x₂ cos pθ + x₁ sin pθ), θ being the pair's frequency.
    """

    cos: Tensor  # (max_positions, dim / 2)
    sin: Tensor

    def __init__(self, max_positions: int, dim: int, base: float, scaling: RotaryScaling | None = None) -> None:
        super().__init__()
        angles = torch.arange(max_positions)[:, None] * rotary_frequencies(dim, base, scaling)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn x (B, H, T, D) by positions (T,); what is wider than the tables stays."""
        cos, sin = self.cos[positions], self.sin[positions]  # (T, dim / 2)
        half = cos.shape[-1]
        first, second, rest = x.split((half, half, x.shape[-1] - 2 * half), dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def rotaries(config: TransformerConfig) -> tuple[Rotary | None, Rotary | None]:
    """Return the rotation of the layers that see everything, and that of those with a window."""
    positions = config.positions
    if positions.kind != "rotary":
        return None, None
    dim = positions.rotary_dim or config.head_dim
    everywhere = Rotary(config.max_positions, dim, positions.base, positions.scaling)
    if not config.attention.local_layers:
        return everywhere, None
    return everywhere, Rotary(config.max_positions, dim, positions.local_base or positions.base)
