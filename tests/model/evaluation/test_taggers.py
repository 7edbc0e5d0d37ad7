"""Figures and cards of taggers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from model.evaluation import calibration as calibrating
from model.evaluation.evaluate import evaluate
from model.evaluation.taggers import Tagged
from model.package import Manifest
from model.training import readers
from model.training.errors import DataError
from model.training.objectives import Tag
from tests.conftest import TEXTS, MakePackage, with_manifest
from tests.model.data_files import write_xz
from tests.model.evaluation.test_evaluate import copy_of, figures

TRAINED = {"recipe": "finetune-tag", "minutes": 1}  # here, so it is known what it left out


def conll(sentences: list[tuple[list[str], list[str]]]) -> str:
    return "\n".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) for words, tags in sentences
    )


def write_entities(data: Path) -> list[tuple[list[str], list[str]]]:
    """Write sentences whose words have tags by chance, as Wikipedia's and as WNUT-17's, and return them."""
    rng = np.random.default_rng(0)
    words = [text.split()[:9] for text in TEXTS]
    rows = [(each, [str(tag) for tag in rng.choice(["O", "B-PER", "B-LOC", "B-ORG"], len(each))]) for each in words * 8]
    write_xz(data / "wikigold" / "all.conll.xz", conll(rows))
    theirs = {"B-PER": "B-person", "B-LOC": "B-location", "B-ORG": "B-group", "O": "O"}
    write_xz(data / "wnut17" / "test.conll.xz", conll([(each, [theirs[tag] for tag in tags]) for each, tags in rows]))
    return rows


def test_taggers_are_scored_by_whole_entities_as_in_training(make_package: MakePackage, tmp_path: Path) -> None:
    entities, data = make_package("entities"), tmp_path / "data"
    rows = write_entities(data)

    found = figures(copy_of(entities, tmp_path), data)

    for dataset, tested in (("wikigold/every tenth from the sixth", rows[5::10]), ("wnut17/test", rows)):
        objective = Tag(entities.training_tokenizer, 64, readers.TAGS)
        objective.encode(tested)
        with torch.no_grad():
            batch = objective.collate(range(len(tested)))
            expected = objective.summarise([objective.score(entities.model, batch)])
        assert {metric: value for (of, metric), value in found.items() if of == dataset} == pytest.approx(
            expected, abs=1e-3
        )
    assert found["wnut17/test", "recall"] > 0


def test_a_taggers_card_tells_where_it_finds_what(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "LEAST_FITTED", 5)
    data, package = tmp_path / "data", with_manifest(make_package("entities"), tmp_path / "package", training=TRAINED)
    rows = write_entities(data)

    evaluate(package, data)

    manifest = Manifest.load(package)  # which compares the diagram with its hash
    assert manifest.calibration is not None and manifest.temperature != 1.0
    assert [error.dataset for error in manifest.calibration.errors] == [
        "wikigold/every tenth from the sixth",
        "wnut17/test",
    ]
    assert {part.metric for part in manifest.slices} == {"entity F1"}
    assert sum(part.rows for part in manifest.slices if part.dataset == "wnut17/test") == len(rows)
    tested = rows[5::10]
    assert [each.input for each in manifest.examples] == [" ".join(words) for words, _ in tested]
    named = [f"{word} ({tag[2:]})" for word, tag in zip(*tested[0], strict=True) if tag != "O"]
    assert manifest.examples[0].truth == ", ".join(named)
    assert {each.dataset for each in manifest.examples + manifest.wrong_answers} == {
        "wikigold/every tenth from the sixth"  # and no tweets
    }
    assert all(each.truth != each.answer for each in manifest.wrong_answers) and manifest.wrong_answers
    assert "reliability.png" in manifest.sha256


def test_a_taggers_answers_have_the_scores_of_words_that_are_told(make_package: MakePackage, tmp_path: Path) -> None:
    logits = np.zeros((3, len(readers.TAGS)), np.float32)
    logits[0, 0] = logits[1, 1] = logits[2, 1] = 5  # nothing, and twice a person
    objective = Tag(make_package("entities").training_tokenizer, 64, readers.TAGS)
    tagged = Tagged("set", [], objective, [], np.array([3]), logits, np.array([0, 1, 0]))

    confidence, right = tagged.judged(1.0)

    assert right.tolist() == [True, False] and confidence == pytest.approx(2 * [np.exp(5) / (np.exp(5) + 6)])


def test_no_sentences_are_told(make_package: MakePackage, tmp_path: Path) -> None:
    write_xz(tmp_path / "wikigold" / "all.conll.xz", conll([(["Dan"], ["B-PER"])]))  # of ten the sixth is tested

    with pytest.raises(DataError, match="wikigold/every tenth from the sixth has no sentence to measure with"):
        evaluate(copy_of(make_package("entities"), tmp_path), tmp_path)
