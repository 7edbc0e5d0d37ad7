"""The recipes there are, as values, and which of them make the bundled packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from model.architectures import TextEncoder, Transformer
from model.architectures.heads import PretrainingHead, WeightedVectorHead
from model.card import Card
from model.config import TransformerConfig
from model.training import cards, nli, pairs, readers, sentences, sentiment
from model.training.cooccurrence import cooccurrence_embeddings
from model.training.files import Split
from model.training.objectives import (
    Answer,
    CausalLM,
    Classify,
    ClassifyImages,
    Contrastive,
    Instruct,
    MaskedLM,
    Objective,
    ScorePairs,
    Tag,
)
from model.training.objectives.pair import Pair
from model.training.recipe import Recipe
from model.training.silver import with_silver_scores
from model.training.teacher import Teacher
from model.training.tokenizers import END_OF_TEXT, train_bpe, train_wordpiece
from model.training.translators import TRANSLATION_RECIPES


def _words_from_counts(model: Transformer, objective: Objective) -> None:
    """Begin with what stands near what, and with how frequent words are."""
    assert isinstance(model, TextEncoder) and isinstance(model.head, PretrainingHead)
    assert isinstance(objective, MaskedLM) and model.head.words.bias is not None
    words, frequencies = cooccurrence_embeddings(objective.documents, model.config.vocab_size, model.config.d_model)
    with torch.no_grad():
        model.embeddings.words.weight.copy_(words)
        model.head.words.bias.copy_(frequencies)


_PRETRAIN_ENCODER = Recipe(
    name="pretrain-encoder",
    card=cards.ENCODER,
    size="mini-encoder",
    read=readers.read_documents,
    texts=lambda rows: [sentence for document in rows for sentence in document],
    train_tokenizer=train_wordpiece,
    objective=lambda tokenizer, config: MaskedLM(
        tokenizer, length=min(128, config.max_positions), long_length=min(512, config.max_positions)
    ),
    initialise=_words_from_counts,
    head="pretrain",
    dropout=0.0,  # what is masked is another in each epoch
    epochs=6,
    batch_tokens=65536,
    learning_rate=2e-3,
    warmup_steps=300,
    ema_decay=0.998,
    evaluate_every=500,
)

# The language of film reviews, for the classifier of sentiment.
_PRETRAIN_ENCODER_REVIEWS = replace(
    _PRETRAIN_ENCODER,
    name="pretrain-encoder-reviews",
    starts_from="pretrain-encoder",
    card=cards.ENCODER_OF_REVIEWS,
    read=sentiment.read_reviews,
    initialise=None,  # what it begins with has words
    epochs=4,
    learning_rate=1e-3,
    warmup_steps=150,
)


def _weigh_rare_words(model: Transformer, objective: Objective) -> None:
    """Let rare words count for more in a text's vector, by how often all of them are in the training texts."""
    assert isinstance(model, TextEncoder) and isinstance(model.head, WeightedVectorHead)
    assert isinstance(objective, Contrastive)
    model.head.weigh_rare_words(torch.from_numpy(np.bincount(objective.ids.flat, minlength=model.config.vocab_size)))


def _score_pairs(teacher: Teacher, tokenizer: Tokenizer, rows: list[Pair]) -> list[Pair]:
    """Let what a run begins with score the pairs that nobody scored."""
    assert cards.ALIKE.max_input_tokens is not None
    return with_silver_scores(teacher, tokenizer, rows, cards.ALIKE.max_input_tokens)


def _texts_of_pairs(rows: list[Pair]) -> list[str]:
    return [text for pair in rows for text in (pair.first, pair.second)]


def _finetune(name: str, card: Card, read: Callable[[Path, Split], list[Any]], **values: Any) -> Recipe:
    """Return a recipe that begins with the pretrained encoder, or is as large."""
    pretrained: dict[str, Any] = {"size": "mini-encoder", "starts_from": "pretrain-encoder", "ema_decay": 0.99}
    return Recipe(name=name, card=card, read=read, train_tokenizer=train_wordpiece, **{**pretrained, **values})


def _longest_text(card: Card, config: TransformerConfig) -> int:
    """Return how many tokens a text may have, in training as in use."""
    return min(card.max_input_tokens or config.max_positions, config.max_positions)


def finetune_classify(
    name: str, card: Card, read: Callable[[Path, Split], list[Any]], most_texts: int | None = None, **values: Any
) -> Recipe:
    """Return a recipe for an encoder that gives texts one of a card's labels; `values` are fields of the recipe."""
    defaults: dict[str, Any] = {
        "texts": lambda rows: [text for text, _ in rows],
        "objective": lambda tokenizer, config: Classify(
            tokenizer,
            _longest_text(card, config),
            word_dropout=0.1,
            most_texts=most_texts,
        ),
        "batch_tokens": 4096,
        "learning_rate": 5e-4,
        "warmup_steps": 50,
        "layer_decay": 0.85,
    }
    return _finetune(name, card, read, **{**defaults, **values})


# What those have in common that learn what follows from what.
_INFERENCES: dict[str, Any] = {
    "texts": lambda rows: [text for pair, _ in rows for text in pair],
    "dropout": 0.0,
    "batch_tokens": 4096,
    "layer_decay": 0.9,
    "ema_decay": 0.998,
    "evaluate_every": 500,
}

# What generators have in common.
_NEXT_TOKENS: dict[str, Any] = {
    "size": "stories",
    "train_tokenizer": lambda texts, vocab_size: train_bpe(texts, vocab_size, [END_OF_TEXT]),
    "batch_tokens": 8300,  # sixteen blocks of 513
    "weight_decay": 0.1,
    "ema_decay": 0.995,
    "evaluate_every": 200,
}
_BOOKS_AND_STORIES = Recipe(
    name="pretrain-decoder",
    card=cards.STORIES_AND_BOOKS,
    read=readers.read_books_and_stories,
    objective=lambda tokenizer, config: CausalLM(tokenizer, config.max_positions),
    dropout=0.0,
    epochs=2,
    learning_rate=1.5e-3,
    muon_learning_rate=4.5e-3,
    warmup_steps=150,
    **_NEXT_TOKENS,
)

_STORIES_ASKED_FOR = Recipe(
    name="sft-decoder",
    starts_from="pretrain-decoder",
    card=cards.STORIES_ASKED_FOR,
    read=readers.read_story_requests,
    texts=lambda rows: [text for row in rows for text in row],
    objective=lambda tokenizer, config: Instruct(tokenizer, config.max_positions),
    dropout=0.1,  # the same stories are seen often
    epochs=8,
    learning_rate=1e-3,
    muon_learning_rate=3e-3,
    warmup_steps=50,
    **_NEXT_TOKENS,
)

_IMAGES = Recipe(
    name="classify-image",
    card=cards.FASHION,
    size="mini-vision",
    read=readers.read_clothes,
    objective=lambda _, config: ClassifyImages(cards.FASHION_IMAGES, config.max_positions, label_smoothing=0.1),
    dropout=0.0,  # images are varied instead
    epochs=18,
    batch_tokens=12800,  # 256 images
    learning_rate=2e-3,
    muon_learning_rate=4e-3,
    warmup_steps=400,
    weight_decay=0.05,
    ema_decay=0.998,
    evaluate_every=430,  # about two epochs
)

_SENTENCE_VECTORS = _finetune(
    "contrastive-embed",
    cards.EMBED,
    pairs.read_pairs_for_vectors,
    texts=_texts_of_pairs,
    objective=lambda tokenizer, config: Contrastive(tokenizer, min(128, config.max_positions), temperature=0.05),
    initialise=_weigh_rare_words,
    starts_from="finetune-score-pairs",
    teach=_score_pairs,
    head="embed",  # made of words more than of what is above them, so all layers learn as fast
    dropout=0.0,
    epochs=2,
    batch_tokens=8192,
    learning_rate=4e-4,
    muon_learning_rate=1e-3,
    warmup_steps=50,
    evaluate_every=100,
)

_ALL = (
    _PRETRAIN_ENCODER,
    _PRETRAIN_ENCODER_REVIEWS,
    finetune_classify(
        "finetune-classify-sentiment",
        cards.SENTIMENT,
        sentiment.read_sentiment,
        starts_from="pretrain-encoder-reviews",
        most_texts=128,  # else the phrases, of which a thousand fit, would be learned in a tenth of the steps
        epochs=2,
        batch_tokens=16384,
        learning_rate=4e-4,
        warmup_steps=150,
        ema_decay=0.995,
        evaluate_every=300,
    ),
    finetune_classify(
        "finetune-classify-sentences",
        cards.SENTIMENT,
        sentences.read_sentences,
        starts_from="finetune-classify-sentiment",
        teach=sentences.label_sentences,
        most_texts=128,
        epochs=1,
        batch_tokens=8192,
        learning_rate=3e-4,
        muon_learning_rate=1.2e-3,
        layer_decay=0.9,
        share_of_start=0.3,  # which knows more of texts that are no reviews
        evaluate_every=300,
    ),
    finetune_classify(
        "finetune-classify-spam",
        cards.SPAM,
        readers.read_spam,
        epochs=6,
        muon_learning_rate=2e-3,
        warmup_steps=30,
        layer_decay=0.9,
        evaluate_every=30,
    ),
    finetune_classify(
        "finetune-classify-topics",
        cards.TOPICS,
        readers.read_topics,
        epochs=4,
        evaluate_every=200,
    ),
    finetune_classify(
        "finetune-classify-entail",
        cards.ENTAIL_ALONE,
        nli.read_entailment,
        starts_from="finetune-answer",  # it compares two texts, too
        epochs=4,
        learning_rate=5e-4,
        muon_learning_rate=2e-3,
        warmup_steps=200,
        **_INFERENCES,
    ),
    finetune_classify(
        "finetune-classify-hypotheses",
        cards.ENTAIL,
        nli.read_hypotheses,
        starts_from="finetune-classify-entail",
        epochs=1,
        learning_rate=4e-4,
        muon_learning_rate=1.5e-3,
        warmup_steps=100,
        **_INFERENCES,
    ),
    _finetune(
        "finetune-score-pairs",
        cards.ALIKE,
        pairs.read_scored_pairs_both_ways,
        texts=_texts_of_pairs,
        objective=lambda tokenizer, config: ScorePairs(tokenizer, _longest_text(cards.ALIKE, config), word_dropout=0.1),
        starts_from="finetune-classify-hypotheses",  # it compares two texts, too
        dropout=0.0,
        epochs=4,
        batch_tokens=4096,
        learning_rate=6e-4,
        muon_learning_rate=2e-3,
        warmup_steps=30,
        layer_decay=0.9,
        evaluate_every=50,
    ),
    _finetune(
        "finetune-tag",
        cards.ENTITIES,
        readers.read_entities,
        texts=lambda rows: [" ".join(words) for words, _ in rows],
        objective=lambda tokenizer, config: Tag(tokenizer, _longest_text(cards.ENTITIES, config), readers.TAGS),
        head="tag",
        epochs=8,
        batch_tokens=2048,
        learning_rate=5e-4,
        warmup_steps=50,
        layer_decay=0.85,
        evaluate_every=100,
    ),
    _finetune(
        "finetune-answer",
        cards.ANSWERS,
        readers.read_questions,
        texts=lambda rows: [text for row in rows for text in (row.question, row.context)],
        objective=lambda tokenizer, config: Answer(
            tokenizer, max_length=_longest_text(cards.ANSWERS, config), stride=config.max_positions // 8
        ),
        starts_from="finetune-tag",  # it looks for names and other spans, too
        head="answer",
        dropout=0.0,  # no question is seen often, and with it a step takes 1.4 times as long on a CPU
        epochs=2,
        batch_tokens=8192,
        learning_rate=5e-4,
        muon_learning_rate=2e-3,
        warmup_steps=200,
        layer_decay=0.9,
        ema_decay=0.998,
        evaluate_every=700,
    ),
    _SENTENCE_VECTORS,
    replace(_SENTENCE_VECTORS, name="contrastive-embed-again", starts_from="contrastive-embed"),
    _BOOKS_AND_STORIES,
    _STORIES_ASKED_FOR,
    *TRANSLATION_RECIPES,
    _IMAGES,
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}


def chain_of(recipe: Recipe) -> list[Recipe]:
    """Return the recipes that lead to one, itself last: each begins with the run of the one before."""
    before = [] if recipe.starts_from is None else chain_of(RECIPES[recipe.starts_from])
    return [*before, recipe]


# Which recipe's run makes each package.
PACKAGES = {
    "sentiment": "finetune-classify-sentences",
    "spam": "finetune-classify-spam",
    "topics": "finetune-classify-topics",
    "embed": "contrastive-embed-again",
    "stories": "sft-decoder",
    "translate": "translate-joined",
    "fashion": "classify-image",
    "entail": "finetune-classify-hypotheses",
    "entities": "finetune-tag",
    "answers": "finetune-answer",
}
# Those in model/packages.
BUNDLED = ("sentiment", "spam", "topics", "embed", "entail", "entities", "answers", "stories", "translate", "fashion")
