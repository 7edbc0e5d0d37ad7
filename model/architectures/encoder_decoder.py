"""The encoder–decoder of "Attention Is All You Need" (Vaswani et al. 2017): a text into another, or into labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.architectures.encoder import TextReader
from model.architectures.heads import make_head
from model.architectures.initialise import initialise
from model.config import TransformerConfig
from model.layers.attention import FullAttention, SelfAttention
from model.layers.block import Stack
from model.layers.embeddings import Embeddings, WordHead


class EncoderDecoder(nn.Module):
    """Source in, target out; one word embedding serves source and target, and the output if tied (section 3.4)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.target_embeddings = Embeddings(config, self.embeddings.words)
        self.encoder = Stack(config, config.num_encoder_layers, is_causal=False)
        self.decoder = Stack(config, config.num_decoder_layers, is_causal=True, has_cross_attention=True)
        self.head = WordHead(config)
        initialise(self, config)

    def encode(self, source_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the source's hidden states (B, S, d_model); attention_mask (B, S) is 1 at real tokens."""
        return self.encoder(self.embeddings(source_ids), FullAttention.within(source_ids, attention_mask))

    def decode(self, target_ids: Tensor, source: Tensor, attention_mask: Tensor) -> Tensor:
        """Return next-token logits (B, T, vocab_size) for a target prefix (B, T) of an encoded source."""
        cross = FullAttention.across(target_ids, source, attention_mask)
        hidden = self.decoder(self.target_embeddings(target_ids), FullAttention.within(target_ids), cross)
        return self.project(hidden)

    def forward(self, source_ids: Tensor, attention_mask: Tensor, target_ids: Tensor) -> Tensor:
        """Encode, then decode with teacher forcing: logits (B, T, vocab_size)."""
        return self.decode(target_ids, self.encode(source_ids, attention_mask), attention_mask)

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden states (…, d_model) to logits (…, vocab_size)."""
        return self.head(hidden, self.embeddings.words)


class EncoderDecoderReader(TextReader):
    """An encoder–decoder that reads a text twice: labels, as a rule of its last token (Lewis et al. 2020, section 3.1).

    The decoder sees the text behind its own last token, the end.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.target_embeddings = Embeddings(config, self.embeddings.words)
        self.encoder = Stack(config, config.num_encoder_layers, is_causal=False)
        self.decoder = Stack(config, config.num_decoder_layers, is_causal=True, has_cross_attention=True)
        self.head = make_head(config)
        initialise(self, config)

    def read(
        self, input_ids: Tensor, segment_ids: Tensor | None, last_positions: Tensor, attention: SelfAttention
    ) -> Tensor:
        """Return what the decoder makes of the ids and of what the encoder makes of them."""
        positions = attention.query_positions  # (T,)
        source = self.encoder(self.embeddings(input_ids, positions[None]), attention)
        before = torch.where(positions > 0, positions - 1, last_positions.long()[:, None])  # (B, T)
        target = self.target_embeddings(input_ids.gather(1, before), positions[None])
        return self.decoder(target, attention, attention.to(source))
