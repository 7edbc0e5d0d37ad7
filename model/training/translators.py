"""The recipes of translators: all directions at once, and two that go on from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from model.config import TransformerConfig
from model.training import cards, readers
from model.training.objectives import Objective, Seq2Seq
from model.training.readers import ENGLISH, LANGUAGES
from model.training.recipe import Recipe
from model.training.tokenizers import END, PAD, START, language_token, train_bpe


def _objective(source_splits: float = 0.0) -> Callable[[Any, TransformerConfig], Objective]:
    return lambda tokenizer, config: Seq2Seq(tokenizer, 64, label_smoothing=0.1, source_splits=source_splits)


_TRANSLATE = Recipe(
    name="translate",
    card=cards.TRANSLATE,
    size="translate",
    read=readers.read_pairs_both_ways,
    texts=lambda rows: [text for _, *pair in rows for text in pair],
    train_tokenizer=lambda texts, vocab_size: train_bpe(
        texts, vocab_size, [PAD, START, END, *map(language_token, (*LANGUAGES, ENGLISH))]
    ),
    objective=_objective(),
    dropout=0.0,
    epochs=3.5,
    batch_tokens=6144,
    learning_rate=1.5e-3,
    muon_learning_rate=4.5e-3,
    warmup_steps=300,
    ema_decay=0.995,
    evaluate_every=500,
)

# Longer, and the same rates.
_LONGER = replace(_TRANSLATE, learning_rate=1e-3, muon_learning_rate=3e-3, warmup_steps=100)

TRANSLATION_RECIPES = (
    _TRANSLATE,
    # Pairs seen three times are known by heart: now nothing is read the same way twice. What is forgotten meanwhile, of
    # French and into English, half of the weights before keep.
    replace(
        _LONGER,
        name="translate-varied",
        starts_from="translate",
        read=readers.read_mostly_pairs_from_english,
        objective=_objective(source_splits=0.15),
        dropout=0.1,
        epochs=5,
        share_of_start=0.5,
    ),
    # All pairs from English again, some of them in twos, as other texts have longer sentences.
    replace(
        _LONGER,
        name="translate-joined",
        starts_from="translate-varied",
        read=readers.read_pairs_from_english_and_some_back,
        objective=_objective(source_splits=0.1),
        dropout=0.05,
        epochs=4,
    ),
)
