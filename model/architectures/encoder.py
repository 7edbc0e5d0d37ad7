"""Encoders, each with a head: labels of a text or of its tokens, its vector, its missing words (Devlin et al. 2019)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, normalize

from model.architectures.embeddings import Embeddings
from model.architectures.initialise import initialise
from model.config import Head, TransformerConfig
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

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Map embeddings (B, T, d_model) to (B, T, d_model); attention_mask (B, T) is 1 at real tokens."""
        mask = None if attention_mask is None else padding_mask(attention_mask)
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


class TextEncoder(nn.Module, ABC):
    """What all encoders of text share: embeddings and blocks. A head says what becomes of the hidden states."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)

    def encode(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return the last hidden states of ids (B, T): (B, T, d_model)."""
        hidden: Tensor = self.encoder(self.embeddings(input_ids, segment_ids=segment_ids), attention_mask)
        return hidden

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return what the head makes of ids (B, T); attention_mask (B, T) is 1 at real tokens."""
        return self.project(self.encode(input_ids, attention_mask, segment_ids), input_ids, attention_mask)

    @abstractmethod
    def project(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Apply the head to hidden states (B, T, d_model) of ids (B, T)."""


class EncoderClassifier(TextEncoder):
    """An encoder whose first token, CLS, is pooled and mapped to labels."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.pooler = nn.Linear(config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        initialise(self, config)

    def project(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits of the labels, (B, num_labels)."""
        logits: Tensor = self.classifier(self.dropout(self.pooler(hidden[:, 0]).tanh()))
        return logits


class TokenClassifier(TextEncoder):
    """Labels for each token: tags of entities, or where an answer starts and ends."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        initialise(self, config)

    def project(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits of each token's labels, (B, T, num_labels)."""
        logits: Tensor = self.classifier(self.dropout(hidden))
        return logits


class SentenceEncoder(TextEncoder):
    """One vector of length 1 for a text: the weighted mean over its tokens of word embedding and hidden state.

    Word embeddings are normalised first. Hidden states count little at the beginning and as much as is learned: a small
    encoder tells texts apart by their words first. Each token of the vocabulary has a weight, 1 until
    `weigh_rare_words`.
    """

    token_weights: Tensor  # (vocab_size, 1)

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.word_norm = LayerNorm(config.d_model, config.norm_epsilon)
        self.context_weight = nn.Parameter(torch.tensor(0.1))
        self.register_buffer("token_weights", torch.ones(config.vocab_size, 1))
        initialise(self, config)

    def weigh_rare_words(self, counts: Tensor) -> None:
        """Set each token's weight to a / (a + its share of `counts`, (vocab_size,)), a being 0.001.

        Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings".
        """
        self.token_weights.copy_(1e-3 / (1e-3 + counts / counts.sum())[:, None])

    def project(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors, (B, d_model)."""
        # Sums of halves, and cosines of them, would be coarse.
        tokens = self.word_norm(self.embeddings.words(input_ids)).float() + self.context_weight * hidden.float()
        weights = self.token_weights[input_ids] * attention_mask[:, :, None]
        return normalize((tokens * weights).sum(1), dim=-1)


class PretrainingEncoder(TextEncoder):
    """Predicts masked words, by the word embedding itself, and whether one text follows another (sections 3.1, A.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.pooler = nn.Linear(config.d_model, config.d_model)
        self.follows = nn.Linear(config.d_model, 2)
        self.transform = nn.Linear(config.d_model, config.d_model)
        self.transform_norm = LayerNorm(config.d_model, config.norm_epsilon)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        initialise(self, config)

    def project(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits of the words at every position, (B, T, vocab_size)."""
        return self.word_logits(hidden)

    def word_logits(self, hidden: Tensor) -> Tensor:
        """Map hidden states (…, d_model) to the logits of words (…, vocab_size)."""
        transformed = self.transform_norm(gelu(self.transform(hidden)))
        return linear(transformed, self.embeddings.words.weight, self.output_bias)

    def follows_logits(self, hidden: Tensor) -> Tensor:
        """Map hidden states (B, T, d_model) to the logits of "does not follow" and "follows", (B, 2)."""
        logits: Tensor = self.follows(self.pooler(hidden[:, 0]).tanh())
        return logits


HEADS: dict[Head, type[TextEncoder]] = {
    "classify": EncoderClassifier,
    "pretrain": PretrainingEncoder,
    "tag": TokenClassifier,
    "answer": TokenClassifier,
    "embed": SentenceEncoder,
}
