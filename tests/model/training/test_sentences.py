"""Sentences of reviews: which are read, and how they are labelled by a model and by their reviews."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from model.training import sentiment
from model.training.errors import RunError
from model.training.objectives import Classify
from model.training.sentences import LEANING, TEMPERATURE, OfReview, Row, label_sentences, read_sentences
from model.training.teacher import Teacher
from tests.conftest import MakePackage
from tests.model.data_files import write_xz
from tests.model.training.tiny_runs import run, training_of

ROWS: list[Row] = [
    ("a good film", 1),
    *(("the dog was good", OfReview(label)) for label in (0, 1)),
    ("a red ball", OfReview(1)),
]


def test_all_reviews_give_sentences_and_some_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentiment, "VALIDATION_REVIEWS", 0)
    reviews = [(f"It was a fine film {number}. No. {'So good and well. ' * 9}", number % 2) for number in range(10)]
    lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in reviews)
    write_xz(tmp_path / "imdb" / "train.jsonl.xz", lines)
    for name, rows in (("train_phrases", "good film\t1\n"), ("dev", "dull\t0\n"), ("test", "bad\t0\n")):
        write_xz(tmp_path / "sst2" / f"{name}.tsv.xz", f"text\tlabel\n{rows}")
    write_xz(tmp_path / "imdb" / "test.jsonl.xz", json.dumps({"text": "x", "label": 0}) + "\n")

    read = read_sentences(tmp_path, "train")

    assert read[0] == ("good film", 1)
    assert read[1:3] == [reviews[0], reviews[5]]  # every fifth
    parts = [(text, label.label) for text, label in read[3:] if isinstance(label, OfReview)]
    assert len(parts) == len(read) - 3 == 6 * len(reviews)
    assert {text for text, _ in parts} >= {"So good and well."} and "No." not in {text for text, _ in parts}
    assert read == read_sentences(tmp_path, "train")


def test_what_a_model_says_of_a_sentence_leans_to_its_reviews_label(tmp_path: Path, make_package: MakePackage) -> None:
    sentiment = make_package("sentiment")
    tokenizer = sentiment.training_tokenizer
    ids = torch.tensor([tokenizer.encode("the dog was good").ids])
    with torch.no_grad():
        logits = sentiment.model(ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))[0]
    odds = float(logits[1] - logits[0])

    rows = label_sentences(Teacher(sentiment.model, tmp_path / "taught.npz"), tokenizer, ROWS)

    assert [text for text, _ in rows] == [text for text, _ in ROWS] and rows[0][1] == (0, 1)
    for (_, label), leaning in zip(rows[1:3], (-LEANING, LEANING), strict=True):
        assert isinstance(label, tuple) and sum(label) == pytest.approx(1)
        assert math.log(label[1] / label[0]) == pytest.approx(odds / TEMPERATURE + leaning, abs=0.1)  # of bfloat16
    assert label_sentences(Teacher(None, tmp_path / "taught.npz"), tokenizer, ROWS) == rows
    alone = label_sentences(Teacher(None, tmp_path / "none.npz"), tokenizer, ROWS)
    assert [label[1] > 0.5 for _, label in alone if isinstance(label, tuple)] == [True, False, True, True]


def test_what_has_other_labels_is_no_teacher(tmp_path: Path, make_package: MakePackage) -> None:
    ranker = make_package("ranker")
    with pytest.raises(RunError, match="begin with a run of finetune-classify-sentiment"):
        label_sentences(Teacher(ranker.model, tmp_path / "taught.npz"), ranker.training_tokenizer, ROWS)


def test_a_run_learns_probabilities_from_what_it_begins_with(tmp_path: Path) -> None:
    run("finetune-classify-sentiment", tmp_path / "teacher", epochs=1)
    options: dict[str, Any] = {"read": lambda _, split: ROWS * 3 if split == "train" else [("a good film", 1)] * 3}

    run("finetune-classify-sentences", tmp_path / "run", tmp_path / "teacher", **options, epochs=1)
    objective = training_of("finetune-classify-sentences", tmp_path / "run", None, **options, epochs=1).objective

    assert isinstance(objective, Classify)
    assert objective.labels.shape == (12, 2) and objective.labels.sum(-1).allclose(torch.ones(12))
    taught = Teacher(None, tmp_path / "run" / "taught.npz")
    assert label_sentences(taught, objective.tokenizer, ROWS * 3)[0] == ("a good film", (0, 1))
