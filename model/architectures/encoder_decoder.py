"""The encoder–decoder of "Attention Is All You Need" (Vaswani et al. 2017), for translation."""

from __future__ import annotations

from torch import Tensor, nn

from model.architectures.initialise import initialise
from model.config import TransformerConfig
from model.layers.attention import FullAttention
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
