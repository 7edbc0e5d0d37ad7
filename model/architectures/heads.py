"""What becomes of hidden states: labels of a text or of its tokens, its vector, its missing words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, normalize

from model.config import HeadConfig, HeadKind, Pooling, TransformerConfig
from model.layers.activations import ACTIVATIONS
from model.layers.embeddings import WordHead
from model.layers.norms import LayerNorm, make_norm


@dataclass(frozen=True)
class Read:
    """A text that was read: what a head may look at."""

    hidden: Tensor  # (B, T, d_model): the last hidden states
    input_ids: Tensor  # (B, T)
    attention_mask: Tensor  # (B, T), True or 1 at real tokens, which come first
    words: nn.Embedding  # the word embedding


def first(read: Read) -> Tensor:
    """Return the hidden state of CLS, (B, d_model)."""
    return read.hidden[:, 0]


def sum_of_tokens(tokens: Tensor) -> Tensor:
    """Return the sum of each text's tokens (B, T, D), one after the other: (B, D).

    A sum without an order would add them up in another one wherever the batch or its longest text is another, and a
    text's vector would depend on its company in the last bit. Zeros of padding at the end change nothing here.
    """
    return tokens.cumsum(1)[:, -1]


def mean(read: Read) -> Tensor:
    """Return the mean of the real tokens' hidden states, (B, d_model)."""
    mask = read.attention_mask[:, :, None].float()
    total = sum_of_tokens(read.hidden.float() * mask)  # sums of halves would lose what a long text's last tokens add
    return (total / mask.sum(1)).to(read.hidden.dtype)


def last(read: Read) -> Tensor:
    """Return the hidden state of each text's last token, (B, d_model)."""
    places = read.attention_mask.long().sum(1) - 1  # (B,)
    return read.hidden.gather(1, places[:, None, None].expand(-1, 1, read.hidden.shape[-1]))[:, 0]


POOLINGS: dict[Pooling, Callable[[Read], Tensor]] = {"first": first, "mean": mean, "last": last}


class Transform(nn.Module):
    """A linear map, an activation and a norm, each if the head has it."""

    def __init__(self, config: TransformerConfig, head: HeadConfig, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, width, bias=head.dense_bias) if head.dense else None
        self.activation = ACTIVATIONS[head.activation]()
        self.norm = make_norm(config.norm, width) if head.norm else nn.Identity()

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (…, d_model) to (…, width)."""
        if self.dense is not None:
            hidden = self.activation(self.dense(hidden))
        return self.norm(hidden)


class Head(nn.Module, ABC):
    """What reads the hidden states of a whole text."""

    @abstractmethod
    def forward(self, read: Read) -> Tensor:
        """Return the answer."""


class LabelHead(Head):
    """The logits of a text's labels, from its pooled hidden states."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.is_late = config.head.pooling == "late"
        self.pool = mean if self.is_late else POOLINGS[config.head.pooling]
        self.transform = Transform(config, config.head, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.d_model, config.head.num_labels, bias=config.head.bias)

    def forward(self, read: Read) -> Tensor:
        """Return the logits, (B, num_labels)."""
        if self.is_late:
            pooled = self.pool(replace(read, hidden=self.transform(read.hidden)))
        else:
            pooled = self.transform(self.pool(read))
        return self.output(self.dropout(pooled))


class TokenLabelHead(Head):
    """The logits of each token's labels: tags of entities, or where an answer starts and ends."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.transform = Transform(config, config.head, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.d_model, config.head.num_labels, bias=config.head.bias)

    def forward(self, read: Read) -> Tensor:
        """Return the logits, (B, T, num_labels)."""
        return self.output(self.dropout(self.transform(read.hidden)))


class VectorHead(Head):
    """A text's vector: its pooled hidden states (Reimers and Gurevych 2019, Sentence-BERT)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pool = POOLINGS[config.head.pooling]
        self.transform = Transform(config, config.head, config.head.width or config.d_model)
        self.normalise = config.head.normalise

    def forward(self, read: Read) -> Tensor:
        """Return the vectors, (B, d_model or the head's own width)."""
        vectors = self.transform(self.pool(read))
        return normalize(vectors.float(), dim=-1) if self.normalise else vectors


class WeightedVectorHead(Head):
    """One vector of length 1 for a text: the weighted mean over its tokens of word embedding and hidden state.

    Word embeddings are normalised first. Hidden states count little at the beginning and as much as is learned: a small
    encoder tells texts apart by their words first. Each token of the vocabulary has a weight, 1 until
    `weigh_rare_words`.
    """

    token_weights: Tensor  # (vocab_size, 1)

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.word_norm = LayerNorm(config.d_model, config.norm.epsilon)
        self.context_weight = nn.Parameter(torch.tensor(0.1))
        self.register_buffer("token_weights", torch.ones(config.vocab_size, 1))

    def weigh_rare_words(self, counts: Tensor) -> None:
        """Set each token's weight to a / (a + its share of `counts`, (vocab_size,)), a being 0.001.

        Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings".
        """
        self.token_weights.copy_(1e-3 / (1e-3 + counts / counts.sum())[:, None])

    def forward(self, read: Read) -> Tensor:
        """Return the vectors, (B, d_model)."""
        # Sums of halves, and cosines of them, would be coarse.
        tokens = self.word_norm(read.words(read.input_ids)).float() + self.context_weight * read.hidden.float()
        weights = embedding(read.input_ids, self.token_weights) * read.attention_mask[:, :, None]  # (B, T, 1)
        return normalize(sum_of_tokens(tokens * weights), dim=-1)


class VocabularyHead(Head):
    """What gives hidden states the logits of words."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.word_transform = Transform(config, config.head, config.word_width)
        self.words = WordHead(config)

    def word_logits(self, hidden: Tensor, words: nn.Embedding) -> Tensor:
        """Map hidden states (…, d_model) to the logits of words (…, vocab_size)."""
        return self.words(self.word_transform(hidden), words)


class FillHead(VocabularyHead):
    """The logits of the words that are masked (Devlin et al. 2019, section 3.1)."""

    def forward(self, read: Read) -> Tensor:
        """Return the logits of the words at every position, (B, T, vocab_size)."""
        return self.word_logits(read.hidden, read.words)


class SparseHead(VocabularyHead):
    """How much a text is about each word, those included that it has not: the largest logit of any token, at least 0.

    Weights are the logarithms of one more (Formal et al. 2021, "SPLADE v2: Sparse Lexical and Expansion Model for
    Information Retrieval", equation 6), which are left to whoever has the few that are not 0: a graph's logarithms
    differ in the last bit by where in a batch a number is.
    """

    def forward(self, read: Read) -> Tensor:
        """Return what weights are made of, (B, vocab_size), of which most are 0."""
        # Padding is read as the first token once more, which changes no maximum.
        is_real = read.attention_mask[:, :, None] > 0
        hidden = torch.where(is_real, read.hidden, first(read)[:, None])
        return self.word_logits(hidden, read.words).amax(1).relu()


class PretrainingHead(FillHead):
    """Masked words, and whether one text follows another (Devlin et al. 2019, sections 3.1, A.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        pooler = replace(config.head, dense=True, activation="tanh", norm=False)
        self.transform = Transform(config, pooler, config.d_model)
        self.follows = nn.Linear(config.d_model, 2)

    def follows_logits(self, hidden: Tensor) -> Tensor:
        """Map hidden states (B, T, d_model) to the logits of "does not follow" and "follows", (B, 2)."""
        return self.follows(self.transform(hidden[:, 0]))


def make_head(config: TransformerConfig) -> Head:
    """Return the head that a configuration asks for, of a model that reads whole texts."""
    if config.head.pooling == "weighted":
        return WeightedVectorHead(config)
    return HEADS[config.head.kind](config)


HEADS: dict[HeadKind, Callable[[TransformerConfig], Head]] = {
    "classify": LabelHead,
    "tag": TokenLabelHead,
    "answer": TokenLabelHead,
    "embed": VectorHead,
    "fill": FillHead,
    "sparse": SparseHead,
    "pretrain": PretrainingHead,
}
