"""From token ids to vectors, and back: word, position and segment embeddings, summed; the logits of words."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import TransformerConfig
from model.layers.norms import make_norm
from model.layers.positions import make_positions


class Embeddings(nn.Module):
    """Sum of word, position and (in BERT) segment embeddings, then optional norm, dropout and linear map.

    `words` shares another's word embedding; positions and norm are always its own.
    """

    def __init__(self, config: TransformerConfig, words: nn.Embedding | None = None) -> None:
        super().__init__()
        choices, width = config.embeddings, config.word_width
        self.words = words or nn.Embedding(config.vocab_size, width)
        self.positions = make_positions(config)
        self.segments = nn.Embedding(choices.segments, width) if choices.segments else None
        self.norm = make_norm(config.norm, width) if choices.norm else nn.Identity()
        self.project = nn.Linear(width, config.d_model) if choices.width is not None else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.scale = math.sqrt(config.d_model) if choices.scale is True else choices.scale or None

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None = None, segment_ids: Tensor | None = None
    ) -> Tensor:
        """Map ids (B, T) to (B, T, d_model); positions count from 0 and segments are 0 unless given."""
        x = self.words(input_ids)
        if self.scale is not None:
            x = x * self.scale
        if self.positions is not None:
            if position_ids is None:
                position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
            x = x + self.positions(position_ids)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(input_ids) if segment_ids is None else segment_ids)
        return self.project(self.dropout(self.norm(x)))


class WordHead(nn.Module):
    """The logits of the vocabulary, by the word embedding (Press and Wolf 2017) or by a matrix of its own."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        head = config.head
        self.scale = head.scale
        self.output = None if head.tied else nn.Linear(config.word_width, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if head.bias else None

    def forward(self, hidden: Tensor, words: nn.Embedding) -> Tensor:
        """Map hidden states (…, as wide as words) to logits (…, vocab_size)."""
        if self.scale is not None:
            hidden = hidden * self.scale
        weight = words.weight if self.output is None else self.output.weight
        return nn.functional.linear(hidden, weight, self.bias)
