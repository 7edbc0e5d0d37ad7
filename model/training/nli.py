"""What follows from what: pairs of sentences, and labels of texts as sentences, for models of entailment."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from model.training.files import Split, read_rows

ENTAILMENTS = ("entailment", "neutral", "contradiction")
SICK = "sick"  # the source whose licence forbids commercial use
# What is said of a text with a label: the first where a request says nothing else.
HYPOTHESES = ("This example is {}.", "This example is about {}.", "This text is about {}.", "It is about {}.", "{}")
NEWS = {"World": "world politics", "Sports": "sports", "Business": "business", "Sci/Tech": "science and technology"}
_WORDS = re.compile(r"(?=[A-Z])")  # where one begins in a name like NaturalPlace


def read_entailment(data: Path, split: Split) -> list[tuple[tuple[str, str], int]]:
    """Read (premise, hypothesis) pairs as (pair, label), but those whose licence forbids commercial use."""
    return read_entailment_file(data, split, without=SICK)


def read_entailment_file(data: Path, file: str, without: str = "") -> list[tuple[tuple[str, str], int]]:
    """Read a file of premises and hypotheses as (pair, label), but those of one source."""
    return [
        ((row["premise"], row["hypothesis"]), row.label(ENTAILMENTS))
        for row in read_rows(data / "nli_mix" / f"{file}.tsv.xz")
        if row["source"] != without
    ]


def read_hypotheses(data: Path, split: Split) -> list[tuple[tuple[str, str], int]]:
    """Read premises and hypotheses, and with them texts with a label and with another of the same data set.

    What a label says of a text becomes a hypothesis, as where texts are sorted into labels of a request (Yin et al.
    2019). It follows with the text's own label; with another it contradicts.
    """
    rng = random.Random(2)
    pairs = read_entailment(data, split)
    for rows in _texts_with_names(data, split):
        names = sorted({name for _, name in rows})
        for text, name in rows:
            other = rng.choice([each for each in names if each != name])
            for label, said in ((ENTAILMENTS.index("entailment"), name), (ENTAILMENTS.index("contradiction"), other)):
                pairs.append(((text, rng.choice(HYPOTHESES).format(said)), label))
    return pairs


def _texts_with_names(data: Path, split: Split) -> Iterator[list[tuple[str, str]]]:
    """Yield texts with what they are about or for, or what their writer feels, in words, a data set at a time."""
    step = 1 if split == "train" else 5
    topics = [(row["text"], row["label"]) for row in read_rows(data / "dbpedia14_subset" / f"{split}.tsv.xz")]
    yield [(text, _WORDS.sub(" ", topic).strip().lower()) for text, topic in topics][:: 2 * step]
    asked = [row for row in read_rows(data / "clinc150" / f"{split}.tsv.xz") if row["domain"] != "oos"]
    yield [(row["text"], row["intent"].replace("_", " ")) for row in asked][::step]
    yield [(row["text"], row["domain"].replace("_", " ")) for row in asked][:: 3 * step]
    felt = [(row["text"], row["emotions"]) for row in read_rows(data / "goemotions" / f"{split}.tsv.xz")]
    yield [(text, feeling) for text, feeling in felt if feeling != "neutral" and "," not in feeling][:: 2 * step]
    if split == "train":
        articles = [(row["context"], row["title"]) for row in read_rows(data / "squad11" / "train.jsonl.xz")]
        yield [(text, title.replace("_", " ")) for text, title in articles][::3]


def read_news(data: Path, count: int) -> list[tuple[str, int]]:
    """Read news evenly from the first to the last of a test set, as (text, label), for what never saw any."""
    rows = list(read_rows(data / "ag_news_subset" / "test.tsv.xz"))
    chosen = (rows[place] for place in np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int))
    return [(f"{row['title']}. {row['description']}", row.label(list(NEWS))) for row in chosen]
