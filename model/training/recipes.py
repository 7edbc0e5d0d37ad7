"""Recipes: everything that makes one bundled package from the data, as values."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from model.card import Card
from model.config import TransformerConfig
from model.package import Dataset
from model.training.data import read_rows
from model.training.names import with_varied_names
from model.training.objectives import CausalLM, Classify, Objective, Seq2Seq
from model.training.tokenizers import (
    END,
    END_OF_TEXT,
    PAD,
    START,
    language_token,
    train_bpe,
    train_wordpiece,
)

Split = Literal["train", "validation"]

LANGUAGES = ("de", "fr", "sv")  # the targets of the bundled translator
LABELS = ("negative", "positive")


@dataclass(frozen=True)
class Recipe:
    """One training run: what is read, how it is encoded, and how long and how fast it is learned."""

    card: Card
    size: str  # a key of model.config.SIZES
    read: Callable[[Path, Split], list[Any]]
    texts: Callable[[list[Any]], list[str]]  # what of the rows the tokenizer is trained on
    train_tokenizer: Callable[[Sequence[str], int], Tokenizer]
    objective: Callable[[Tokenizer, TransformerConfig], Objective]
    epochs: float
    batch_tokens: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    checkpoint_every: int = 200  # steps
    evaluate_every: int = 1000  # steps
    seed: int = 1


def read_sentiment(data: Path, split: Split) -> list[tuple[str, int]]:
    """Read SST-2 phrases and IMDb reviews as (text, label); 1,000 reviews are kept for validation."""
    phrases = data / "sst2" / ("train_phrases.tsv.xz" if split == "train" else "dev.tsv.xz")
    rows = [(row["text"], int(row["label"])) for row in read_rows(phrases)]
    reviews = [(row["text"], int(row["label"])) for row in read_rows(data / "imdb" / "train.jsonl.xz")]
    return rows + (reviews[1000:] if split == "train" else reviews[:1000])


def read_stories(data: Path, split: Split) -> list[str]:
    """Read TinyStories, and for training the openly licensed storybooks too."""
    rows = list(read_rows(data / "tinystories_subset" / f"{split}.jsonl.xz"))
    if split == "train":
        rows += read_rows(data / "storybooks_ccby" / "all.jsonl.xz")
    return [re.sub(r"\s*\n\s*", "\n", row["text"].strip()) for row in rows]


def read_books_and_stories(data: Path, split: Split) -> list[str]:
    """Read the stories, and for training the public-domain children's books too, chapter by chapter."""
    rows = read_stories(data, split)
    if split == "train":
        chapters = read_rows(data / "books_pd" / "train.jsonl.xz")
        rows += [row["text"] for row in chapters if row["group"] == "children"]
    return rows


def read_pairs(data: Path, split: Split) -> list[tuple[str, str, str]]:
    """Read Tatoeba as (target language, English, translation); Swedish is small, so training sees it three times."""
    rows = []
    for language in LANGUAGES:
        pairs = [
            (language, row["en"], row[language])
            for row in read_rows(data / f"tatoeba_en_{language}" / f"{split}.tsv.xz")
        ]
        rows += pairs * (3 if language == "sv" and split == "train" else 1)
    return rows


def read_pairs_with_varied_names(data: Path, split: Split) -> list[tuple[str, str, str]]:
    """Read Tatoeba with other names than Tom and Mary in half of the training sentences."""
    rows = read_pairs(data, split)
    return with_varied_names(rows, seed=1) if split == "train" else rows


def read_mostly_swedish_pairs(data: Path, split: Split) -> list[tuple[str, str, str]]:
    """Read the Swedish pairs, three times as ever; for training with no more German and French ones than there are."""
    rows = read_pairs_with_varied_names(data, split)
    if split == "validation":
        return rows
    swedish = [row for row in rows if row[0] == "sv"]
    rng = random.Random(1)
    others = [rng.sample([row for row in rows if row[0] == code], len(swedish) // 3) for code in ("de", "fr")]
    return [*swedish, *others[0], *others[1]]


_TRANSLATE = Recipe(
    card=Card(
        name="translate",
        task="translate",
        description="Translates short everyday English sentences into German, French or Swedish.",
        licence="that of its training data: CC BY 2.0 FR, attribution to tatoeba.org and manythings.org/anki",
        training_data=tuple(
            Dataset(name=f"Tatoeba sentence pairs en-{language}", licence="CC BY 2.0 FR, tatoeba.org")
            for language in LANGUAGES
        ),
        source_languages=("en",),
        target_languages=LANGUAGES,
    ),
    size="translate",
    read=read_pairs,
    texts=lambda rows: [text for _, source, target in rows for text in (source, target)],
    train_tokenizer=lambda texts, vocab_size: train_bpe(
        texts, vocab_size, [PAD, START, END, *map(language_token, LANGUAGES)]
    ),
    objective=lambda tokenizer, config: Seq2Seq(tokenizer, max_length=64, label_smoothing=0.1),
    epochs=4,
    batch_tokens=6144,
    learning_rate=1.5e-3,
    warmup_steps=400,
)

_STORIES = Recipe(
    card=Card(
        name="stories",
        task="generate",
        description="Continues or invents short stories for small children in simple English.",
        licence="that of its training data: CDLA-Sharing-1.0, CC BY 4.0, and the public domain",
        training_data=(
            Dataset(name="TinyStories, a subset of 12,202 stories", licence="CDLA-Sharing-1.0"),
            Dataset(name="Storybooks by Pratham Books and African Storybook, 682 texts", licence="CC BY 4.0"),
            Dataset(name="58 children's books of 1719 to 1926", licence="public domain"),
        ),
    ),
    size="stories",
    read=read_books_and_stories,
    texts=lambda rows: rows,
    train_tokenizer=lambda texts, vocab_size: train_bpe(texts, vocab_size, [END_OF_TEXT]),
    objective=lambda tokenizer, config: CausalLM(tokenizer, config.max_positions),
    epochs=2,
    batch_tokens=8300,  # sixteen blocks of 513
    learning_rate=1e-3,
    warmup_steps=100,
    weight_decay=0.1,
)

RECIPES: dict[str, Recipe] = {
    "sentiment": Recipe(
        card=Card(
            name="sentiment",
            task="classify",
            description="Tells whether an English text, such as a review of a film, is positive or negative.",
            licence="unclear, as no licence of the training data was ever published; for research and demonstration",
            training_data=(
                Dataset(name="SST-2, phrases of the training sentences", licence="unclear: none was published"),
                Dataset(name="IMDb Large Movie Review Dataset, train", licence="unclear: none was published"),
            ),
            labels=LABELS,
        ),
        size="sentiment",
        read=read_sentiment,
        texts=lambda rows: [text for text, _ in rows],
        train_tokenizer=train_wordpiece,
        objective=lambda tokenizer, config: Classify(tokenizer, config.max_positions),
        epochs=2,
        batch_tokens=8192,
        learning_rate=5e-4,
        warmup_steps=300,
    ),
    "stories": _STORIES,
    # Started from a run of the one above: the simple stories alone, for the bundled generator is asked for those.
    "stories-simple": replace(_STORIES, read=read_stories, epochs=3, learning_rate=8e-4, warmup_steps=50),
    "translate": _TRANSLATE,
    # Started from a run of the one above: one more pass, with names to carry over.
    "translate-names": replace(
        _TRANSLATE,
        read=read_pairs_with_varied_names,
        epochs=1,
        learning_rate=6e-4,
        warmup_steps=50,
    ),
    # Started from a run of the one above: Swedish has the fewest pairs, and gets the last word.
    "translate-swedish": replace(
        _TRANSLATE,
        read=read_mostly_swedish_pairs,
        epochs=1,
        learning_rate=3e-4,
        warmup_steps=20,
    ),
}
