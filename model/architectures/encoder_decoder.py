"""The encoder–decoder of "Attention Is All You Need" (Vaswani et al. 2017), for translation."""

from __future__ import annotations

from torch import Tensor, nn

from model.architectures.decoder import Decoder
from model.architectures.embeddings import Embeddings, output_bias
from model.architectures.encoder import Encoder
from model.architectures.initialise import initialise
from model.config import TransformerConfig
from model.layers.attention import padding_mask


class EncoderDecoder(nn.Module):
    """Source in, target out; one word embedding serves source, target and the output matrix (section 3.4)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.target_embeddings = Embeddings(config, self.embeddings.words)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config, has_cross_attention=True)
        self.output_bias = output_bias(config)
        initialise(self, config)

    def encode(self, source_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the source's hidden states (B, S, d_model); attention_mask (B, S) is 1 at real tokens."""
        hidden: Tensor = self.encoder(self.embeddings(source_ids), attention_mask)
        return hidden

    def decode(self, target_ids: Tensor, source: Tensor, attention_mask: Tensor) -> Tensor:
        """Return next-token logits (B, T, vocab_size) for a target prefix (B, T) of an encoded source."""
        return self.project(self.decoder(self.target_embeddings(target_ids), source, padding_mask(attention_mask)))

    def forward(self, source_ids: Tensor, attention_mask: Tensor, target_ids: Tensor) -> Tensor:
        """Encode, then decode with teacher forcing: logits (B, T, vocab_size)."""
        return self.decode(target_ids, self.encode(source_ids, attention_mask), attention_mask)

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden states (…, d_model) to logits (…, vocab_size)."""
        return nn.functional.linear(hidden, self.embeddings.words.weight, self.output_bias)
