"""What reads a whole text at once: an encoder with a head (Devlin et al. 2019), or a decoder with one."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from model.architectures.heads import Head, Read, make_head
from model.architectures.initialise import initialise
from model.config import TransformerConfig
from model.layers.attention import FullAttention, SelfAttention
from model.layers.block import Stack
from model.layers.embeddings import Embeddings


class TextReader(nn.Module, ABC):
    """Embeddings, a stack, and a head that says what becomes of the hidden states."""

    head: Head

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)

    @abstractmethod
    def read(
        self, input_ids: Tensor, segment_ids: Tensor | None, last_positions: Tensor, attention: SelfAttention
    ) -> Tensor:
        """Return the last hidden states of ids (B, T), whose last real tokens are at (B,): (B, T, d_model)."""

    def encode(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return the last hidden states of ids (B, T): (B, T, d_model)."""
        last_positions = attention_mask.long().sum(1) - 1
        return self.read(input_ids, segment_ids, last_positions, FullAttention.within(input_ids, attention_mask))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return what the head makes of ids (B, T); attention_mask (B, T) is 1 at real tokens, which come first."""
        hidden = self.encode(input_ids, attention_mask, segment_ids)
        return self.head(Read(hidden, input_ids, attention_mask, self.embeddings.words))


class TextEncoder(TextReader):
    """An encoder: each position sees the whole text."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.encoder = Stack(config, config.num_encoder_layers, is_causal=False)
        self.head = make_head(config)
        initialise(self, config)

    def read(
        self, input_ids: Tensor, segment_ids: Tensor | None, last_positions: Tensor, attention: SelfAttention
    ) -> Tensor:
        """Return what the encoder makes of the ids."""
        return self.encoder(self.embeddings(input_ids, attention.query_positions[None], segment_ids), attention)


class DecoderReader(TextReader):
    """A decoder that generates nothing: labels or a vector, as a rule of the last token (Radford et al. 2018, 3.3)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.decoder = Stack(config, config.num_decoder_layers, is_causal=True)
        self.head = make_head(config)
        initialise(self, config)

    def read(
        self, input_ids: Tensor, segment_ids: Tensor | None, last_positions: Tensor, attention: SelfAttention
    ) -> Tensor:
        """Return what the decoder makes of the ids."""
        return self.decoder(self.embeddings(input_ids, attention.query_positions[None], segment_ids), attention)
