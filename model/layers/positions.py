"""What tells a transformer the order of its tokens: sinusoidal and learned positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import Positions


def sinusoidal_table(max_positions: int, d_model: int) -> Tensor:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same) (Vaswani et al. 2017, 3.5).

    Shape (max_positions, d_model).
    """
    frequencies = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = torch.arange(max_positions)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def grid_table(side: int, d_model: int) -> Tensor:
    """Return waves of the row and of the column, half of each vector for either (Beyer et al. 2022, 3).

    Shape (side², d_model), row by row; d_model is a multiple of 4.
    """
    waves, places = sinusoidal_table(side, d_model // 2), torch.arange(side**2)
    return torch.cat((waves[places // side], waves[places % side]), dim=1)


class SinusoidalPositions(nn.Module):
    """Fixed waves of geometrically growing length."""

    table: Tensor

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(max_positions, d_model), persistent=False)

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return the vectors of positions (B, T): (B, T, d_model)."""
        return nn.functional.embedding(position_ids, self.table)


class SinusoidalHalvesPositions(SinusoidalPositions):
    """The same waves with all sines before all cosines, as Marian orders them."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__(max_positions, d_model)
        self.table = torch.cat((self.table[:, ::2], self.table[:, 1::2]), dim=1)


class LearnedPositions(nn.Embedding):
    """A vector per position, learned like a word's."""


POSITIONS: dict[Positions, type[nn.Module]] = {
    "sinusoidal": SinusoidalPositions,
    "sinusoidal-halves": SinusoidalHalvesPositions,
    "learned": LearnedPositions,
}
