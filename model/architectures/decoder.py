"""The decoder-only language model (Radford et al. 2018)."""

from __future__ import annotations

from torch import Tensor, nn

from model.architectures.embeddings import Embeddings, output_bias
from model.architectures.initialise import initialise
from model.config import TransformerConfig
from model.layers.attention import causal_mask
from model.layers.block import Block
from model.layers.cache import CrossAttentionCache, SelfAttentionCache
from model.layers.norms import LayerNorm


class Decoder(nn.Module):
    """Blocks whose positions see only what came before, and, in a translator, the whole source."""

    def __init__(self, config: TransformerConfig, *, has_cross_attention: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(config, has_cross_attention=has_cross_attention) for _ in range(config.num_decoder_layers)
        )
        is_pre = config.norm_placement == "pre"
        self.final_norm = LayerNorm(config.d_model, config.norm_epsilon) if is_pre else nn.Identity()

    def forward(self, x: Tensor, source: Tensor | None = None, source_mask: Tensor | None = None) -> Tensor:
        """Map embeddings (B, T, d_model) to (B, T, d_model), the slow way: everything anew."""
        mask = causal_mask(x.shape[1], x.device)
        for block in self.blocks:
            x = block(x, mask, source, source_mask)
        hidden: Tensor = self.final_norm(x)
        return hidden

    def forward_cached(
        self, x: Tensor, caches: list[SelfAttentionCache], cross_caches: list[CrossAttentionCache] | None = None
    ) -> Tensor:
        """Map only the new tokens' embeddings (B, T, d_model); each layer's cache is brought up to date."""
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x = block.forward_cached(x, caches[layer], cross_caches[layer] if cross_caches else None)
        hidden: Tensor = self.final_norm(x)
        return hidden


class DecoderLM(nn.Module):
    """A decoder that predicts the next token; the output matrix is the word embedding (Press and Wolf 2017)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.decoder = Decoder(config)
        self.output_bias = output_bias(config)
        initialise(self, config)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return next-token logits for ids (B, T): (B, T, vocab_size)."""
        return self.project(self.decoder(self.embeddings(input_ids)))

    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden states (…, d_model) to logits (…, vocab_size)."""
        return nn.functional.linear(hidden, self.embeddings.words.weight, self.output_bias)
