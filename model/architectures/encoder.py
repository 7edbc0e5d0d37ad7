"""The encoder with a classification head over CLS (Devlin et al. 2019)."""

from __future__ import annotations

from torch import Tensor, nn

from model.architectures.embeddings import Embeddings, initialise
from model.config import TransformerConfig
from model.layers.attention import padding_mask
from model.layers.block import Block
from model.layers.norms import LayerNorm
from model.layers.ragged import RaggedSelfAttention


class Encoder(nn.Module):
    """Blocks that see the whole text at once; padding is masked."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_encoder_layers))
        # Pre-norm leaves the sum of all blocks unnormalised, so it ends with one more norm (Xiong et al. 2020).
        is_pre = config.norm_placement == "pre"
        self.final_norm = LayerNorm(config.d_model, config.norm_epsilon) if is_pre else nn.Identity()

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        """Map embeddings (B, T, d_model) to (B, T, d_model); attention_mask (B, T) is 1 at real tokens."""
        mask = padding_mask(attention_mask)
        for block in self.blocks:
            x = block(x, mask)
        hidden: Tensor = self.final_norm(x)
        return hidden

    def forward_ragged(self, x: Tensor, attention: RaggedSelfAttention) -> Tensor:
        """Map embeddings (B, T, d_model) to (B, T, d_model), as the exported graph does."""
        for block in self.blocks:
            assert isinstance(block, Block)
            x = block.forward_cached(x, attention)
        hidden: Tensor = self.final_norm(x)
        return hidden


class EncoderClassifier(nn.Module):
    """An encoder whose first token, CLS, is pooled and mapped to labels."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = nn.Linear(config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        initialise(self, config)

    def encode(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return the last hidden states of ids (B, T): (B, T, d_model)."""
        hidden: Tensor = self.encoder(self.embeddings(input_ids, segment_ids=segment_ids), attention_mask)
        return hidden

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return the logits of the labels, (B, num_labels)."""
        return self.classify(self.encode(input_ids, attention_mask, segment_ids))

    def classify(self, hidden: Tensor) -> Tensor:
        """Map hidden states (B, T, d_model) to the logits of the labels, (B, num_labels)."""
        first = hidden[:, 0]
        logits: Tensor = self.classifier(self.dropout(self.pooler(first).tanh()))
        return logits
