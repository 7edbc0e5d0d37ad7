"""What people think of films: SST-2's phrases and IMDb's reviews."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from model.training.errors import DataError
from model.training.files import Split, read_rows
from model.training.readers import bare, sentences_of

SENTIMENTS = ("negative", "positive")
VALIDATION_REVIEWS = 1000


def read_sentiment(data: Path, split: Split) -> list[tuple[str, int]]:
    """Read SST-2 phrases and IMDb reviews as (text, label); 1,000 reviews are kept for validation.

    What occurs in validation or test data too (phrases such as "what's next?", reviews sent twice) is not trained on.
    """
    if split == "train":
        opinions = read_opinions(data)
        return opinions.phrases + opinions.reviews
    kept = read_labelled(data / "imdb" / "train.jsonl.xz")[:VALIDATION_REVIEWS]
    if len(kept) > 1 and len({label for _, label in kept}) == 1:
        raise DataError(
            f"{data / 'imdb'}: the first {VALIDATION_REVIEWS} reviews, which are validated on, all have one label; "
            "shuffle them"
        )
    return read_labelled(data / "sst2" / "dev.tsv.xz") + kept


class Opinions(NamedTuple):
    """What of SST-2 and IMDb is trained on, as (text, label), and what is held out, as `bare` has it."""

    phrases: list[tuple[str, int]]
    reviews: list[tuple[str, int]]
    held_out: set[str]


def read_opinions(data: Path) -> Opinions:
    """Read SST-2's phrases and IMDb's reviews, without what is validated or tested on."""
    reviews = read_labelled(data / "imdb" / "train.jsonl.xz")
    held_out = _held_out_opinions(data, reviews)
    phrases, others = (
        [(text, label) for text, label in rows if bare(text) not in held_out]
        for rows in (read_labelled(data / "sst2" / "train_phrases.tsv.xz"), reviews[VALIDATION_REVIEWS:])
    )
    return Opinions(phrases, others, held_out)


def read_reviews(data: Path, split: Split) -> list[list[str]]:
    """Read IMDb's reviews as documents, each a list of sentences: those to learn labels from, and those without any."""
    reviews = read_labelled(data / "imdb" / "train.jsonl.xz")
    if split == "validation":
        return [sentences_of(text) for text, _ in reviews[:VALIDATION_REVIEWS]]
    held_out = _held_out_opinions(data, reviews)
    texts = [text for text, _ in reviews[VALIDATION_REVIEWS:]]
    texts += [row["text"] for row in read_rows(data / "imdb" / "unlabelled.jsonl.xz")]
    return [sentences_of(text) for text in texts if bare(text) not in held_out]


def _held_out_opinions(data: Path, reviews: list[tuple[str, int]]) -> set[str]:
    """Return what of SST-2 and IMDb is validated and tested on."""
    tests = [read_labelled(data / file) for file in ("sst2/test.tsv.xz", "sst2/dev.tsv.xz", "imdb/test.jsonl.xz")]
    return {bare(text) for rows in (*tests, reviews[:VALIDATION_REVIEWS]) for text, _ in rows}


def read_labelled(path: Path) -> list[tuple[str, int]]:
    """Read a file of texts with numbered labels."""
    return [(row["text"], row.label(("0", "1"))) for row in read_rows(path)]
