"""The decoder-only language model (Radford et al. 2018)."""

from __future__ import annotations

from torch import Tensor, nn

from model.architectures.heads import Transform
from model.architectures.initialise import initialise
from model.config import TransformerConfig
from model.layers.attention import FullAttention
from model.layers.block import Stack
from model.layers.embeddings import Embeddings, WordHead


class DecoderLM(nn.Module):
    """A decoder that predicts the next token."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.decoder = Stack(config, config.num_decoder_layers, is_causal=True)
        head = config.head
        self.word_transform = Transform(config, head, config.d_model) if head.dense or head.norm else nn.Identity()
        self.head = WordHead(config)
        initialise(self, config)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return next-token logits for ids (B, T): (B, T, vocab_size)."""
        return self.project(self.decoder(self.embeddings(input_ids), FullAttention.within(input_ids)))

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden states (…, d_model) to logits (…, vocab_size)."""
        return self.head(self.word_transform(hidden), self.embeddings.words)
