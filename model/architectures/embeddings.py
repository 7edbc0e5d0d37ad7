"""From token ids to vectors: word, position and segment embeddings, summed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import TransformerConfig
from model.layers.norms import LayerNorm
from model.layers.positions import POSITIONS


class Embeddings(nn.Module):
    """Sum of word, position and (in BERT) segment embeddings, then optional norm and dropout.

    `words` shares another's word embedding; positions and norm are always its own.
    """

    def __init__(self, config: TransformerConfig, words: nn.Embedding | None = None) -> None:
        super().__init__()
        self.words = words or nn.Embedding(config.vocab_size, config.d_model)
        self.positions = POSITIONS[config.positions](config.max_positions, config.d_model)
        self.segments = nn.Embedding(config.num_segments, config.d_model) if config.num_segments else None
        self.norm = LayerNorm(config.d_model, config.norm_epsilon) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None = None, segment_ids: Tensor | None = None
    ) -> Tensor:
        """Map ids (B, T) to (B, T, d_model); positions count from 0 and segments are 0 unless given."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        x = self.words(input_ids) * self.scale + self.positions(position_ids)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(input_ids) if segment_ids is None else segment_ids)
        summed: Tensor = self.dropout(self.norm(x))
        return summed


def output_bias(config: TransformerConfig) -> nn.Parameter | None:
    """Return the logits' bias, (vocab_size,), if the configuration has one."""
    return nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
