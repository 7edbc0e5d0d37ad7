"""Sentences of reviews, labelled by what a model says of them and by their review's own label.

Whoever likes a film says so in most sentences, but not in all of them. A model that judges sentences knows much of
each, and where it knows little the review's label decides (Kotzias et al. 2015, "From Group to Individual Labels").
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from model.architectures import Transformer
from model.training.errors import RunError
from model.training.files import Split
from model.training.objectives import Classify
from model.training.readers import bare, sentences_of
from model.training.sentiment import SENTIMENTS, read_opinions, read_sentiment
from model.training.teacher import Teacher, labels_texts, logits_of

OF_A_REVIEW = 6  # sentences, drawn by chance
WORDS = range(4, 46)  # of a sentence
WHOLE = 5  # of so many reviews one is learned whole, too
BATCH_TOKENS, MAX_LENGTH = 32768, 128
# What the teacher's log odds are divided by, as it is too sure, and what the review's label adds to them.
TEMPERATURE, LEANING = 1.3, 1.2


@dataclass(frozen=True)
class OfReview:
    """The label of the review that a sentence is from, 0 or 1."""

    label: int


Row = tuple[str, int | OfReview]
Labelled = tuple[str, tuple[float, float]]  # how likely it is negative, and positive


def read_sentences(data: Path, split: Split) -> list[Row]:
    """Read SST-2's phrases, some of IMDb's reviews, and sentences of all, as (text, label); none that is tested on."""
    if split == "validation":
        return [*read_sentiment(data, split)]
    opinions = read_opinions(data)
    draw = random.Random(1)
    rows: list[Row] = [*opinions.phrases, *opinions.reviews[::WHOLE]]
    for text, label in opinions.reviews:
        found = [sentence for sentence in sentences_of(text) if len(sentence.split()) in WORDS]
        drawn = draw.sample(found, min(OF_A_REVIEW, len(found)))
        rows += [(sentence, OfReview(label)) for sentence in drawn if bare(sentence) not in opinions.held_out]
    return rows


def label_sentences(teacher: Teacher, tokenizer: Tokenizer, rows: list[Row]) -> list[Labelled]:
    """Return rows with probabilities of both labels, those of sentences as the teacher and their reviews say.

    Where the teacher says nothing reviews speak alone. Raises `RunError` if it has not two labels, or its file is of
    other sentences.
    """
    texts = [text for text, label in rows if isinstance(label, OfReview)]
    said = teacher.says(texts, lambda model: _log_odds(model, tokenizer, texts))
    odds = iter((np.zeros(len(texts)) if said is None else said).tolist())
    return [
        (text, _of_sentence(next(odds), label.label) if isinstance(label, OfReview) else (1.0 - label, float(label)))
        for text, label in rows
    ]


def _of_sentence(odds: float, of_review: int) -> tuple[float, float]:
    """Return how likely a sentence is negative and positive, of the teacher's log odds that it is positive."""
    positive = 1 / (1 + math.exp(-(odds / TEMPERATURE + (LEANING if of_review else -LEANING))))
    return 1 - positive, positive


def _log_odds(teacher: Transformer, tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return what the teacher says of each text, (N,)."""
    if not labels_texts(teacher, len(SENTIMENTS)):
        raise RunError(
            "sentences are to be labelled by the model that this run begins with, and it has not two labels; begin "
            "with a run of finetune-classify-sentiment"
        )
    objective = Classify(tokenizer, min(MAX_LENGTH, teacher.config.max_positions))
    objective.encode([(text, 0) for text in texts])
    negative, positive = logits_of(teacher, objective, len(texts), BATCH_TOKENS).numpy().astype(np.float64).T
    odds: NDArray[np.float64] = positive - negative
    return odds
