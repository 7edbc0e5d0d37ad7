"""Vectors that tell a transformer the order of its tokens: waves and learned positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import TransformerConfig


def sinusoidal_table(max_positions: int, d_model: int) -> Tensor:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same) (Vaswani et al. 2017, 3.5).

    Shape (max_positions, d_model).
    """
    return _waves(max_positions, torch.arange(0, d_model, 2) / d_model).flatten(1)


def halves_table(max_positions: int, d_model: int) -> Tensor:
    """Return the same waves with all sines before all cosines, as Marian orders them."""
    return _waves(max_positions, torch.arange(0, d_model, 2) / d_model).transpose(1, 2).flatten(1)


def fairseq_table(max_positions: int, d_model: int) -> Tensor:
    """Return sines before cosines with wave lengths from 2π to 10000 · 2π, both reached, as fairseq has them."""
    return _waves(max_positions, torch.arange(d_model // 2) / (d_model // 2 - 1)).transpose(1, 2).flatten(1)


def _waves(max_positions: int, exponents: Tensor) -> Tensor:
    """Return sine and cosine of each position / 10000^exponent, (max_positions, exponents, 2)."""
    angles = torch.arange(max_positions)[:, None] * torch.exp(exponents * -math.log(10000.0))
    return torch.stack((angles.sin(), angles.cos()), dim=-1)


def grid_table(side: int, d_model: int) -> Tensor:
    """Return waves of the row and of the column, half of each vector for either (Beyer et al. 2022, 3).

    Shape (side², d_model), row by row; d_model is a multiple of 4.
    """
    waves, places = sinusoidal_table(side, d_model // 2), torch.arange(side**2)
    return torch.cat((waves[places // side], waves[places % side]), dim=1)


class SinusoidalPositions(nn.Module):
    """Fixed waves of geometrically growing length."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return the vectors of positions (B, T): (B, T, d_model)."""
        return nn.functional.embedding(position_ids, self.table)


class LearnedPositions(nn.Embedding):
    """A vector per position, learned like a word's."""


TABLES = {"sinusoidal": sinusoidal_table, "sinusoidal-halves": halves_table, "sinusoidal-fairseq": fairseq_table}


def make_positions(config: TransformerConfig) -> SinusoidalPositions | LearnedPositions | None:
    """Return what is added to the embeddings, if anything is."""
    kind, offset = config.positions.kind, config.positions.offset
    if kind == "learned":
        return LearnedPositions(config.max_positions, config.word_width)
    if kind not in TABLES:
        return None
    return SinusoidalPositions(TABLES[kind](config.max_positions + offset, config.d_model)[offset:])
