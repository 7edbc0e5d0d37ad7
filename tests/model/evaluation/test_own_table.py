"""Classifiers that were not fine-tuned here, measured on a table of the user's own."""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from model.evaluation.classifiers import _own
from model.evaluation.evaluate import evaluate
from model.evaluation.opened import Evaluation
from model.export.export import export_package
from model.export.runs import tokens_of
from model.package import Manifest, PackageError
from model.package.manifest import RELIABILITY_FILE, TOKENIZER_FILE
from model.training.errors import DataError
from model.training.recipes import RECIPES
from tests.conftest import TEXTS, MakePackage, TinyPackage, with_manifest
from tests.model.evaluation.test_evaluate import balanced, logits_of

LABELS = ["hardware", "billing"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
ERRORS = [{"dataset": "other/test", "before": 0.2, "after": 0.1}]
CALIBRATION = {"temperature": 2.0, "fitted_on": "other texts", "rows": 100, "errors": ERRORS}


@pytest.fixture
def imported(sentiment: TinyPackage, tmp_path: Path) -> TinyPackage:
    """A classifier with labels that no data set here has, which finds half of the words to have each."""
    made = balanced(sentiment, WORDS, tmp_path / "balanced")
    folder = with_manifest(made, tmp_path / "imported", family="bert", labels=LABELS)
    return TinyPackage(folder, Manifest.load(folder), made.model)


def write_table(folder: Path, rows: list[tuple[str, str]], kind: str = "csv") -> Path:
    folder.mkdir(exist_ok=True)
    if kind == "jsonl":
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    else:
        between = "," if kind == "csv" else "\t"
        lines = [f"text{between}label", *(f'"{text}"{between}{label}' for text, label in rows)]
    (folder / f"test.{kind}").write_text("\n".join([*lines, ""]))
    return folder


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_a_table_with_labels_of_the_package_measures_it(imported: TinyPackage, kind: str, tmp_path: Path) -> None:
    said = [LABELS[int(logits_of(imported, word).argmax())] for word in WORDS]
    named = [label if place % 4 else "billing" for place, label in enumerate(said)]
    table = write_table(tmp_path / "tickets", list(zip(WORDS, named, strict=True)), kind)

    (figure,) = evaluate(imported.folder, table)

    right = sum(label == answer for label, answer in zip(named, said, strict=True)) / len(WORDS)
    assert (figure.dataset, figure.metric) == ("tickets/test", "accuracy")
    assert figure.value == pytest.approx(right, abs=1e-4) and right < 1
    manifest = Manifest.load(imported.folder)
    assert {part.part for part in manifest.slices if "label" in part.part} == {f"true label {each}" for each in LABELS}
    assert {answer.truth for answer in manifest.wrong_answers} == {"billing"}
    assert RELIABILITY_FILE in manifest.sha256


def test_texts_that_a_server_refuses_as_too_long_are_told(imported: TinyPackage, tmp_path: Path) -> None:
    longest = imported.manifest.limits.max_input_tokens
    table = write_table(tmp_path / "tickets", [("good " * longest, "billing"), *((word, "billing") for word in WORDS)])
    told: list[str] = []

    evaluate(imported.folder, table, tell=lambda _, remarks: told.extend(remarks))

    (remark,) = told
    assert remark.startswith(f"tickets/test: 1 of {len(WORDS) + 1} texts are longer than {longest} tokens, and were")
    lengths = [part.part for part in Manifest.load(imported.folder).slices if "tokens" in part.part]
    assert lengths[-1].endswith(f"to {longest} tokens")  # which is what was read


def test_what_a_precision_costs_is_measured_on_a_table_too(imported: TinyPackage, tmp_path: Path) -> None:
    card = RECIPES["finetune-classify-spam"].card
    tokens = tokens_of(imported.folder / TOKENIZER_FILE, card)
    export_package(imported.model, tokens, card, tmp_path / "eight", precision="int8")
    eight = Manifest.load(tmp_path / "eight").model_copy(update={"family": "bert", "labels": LABELS})
    eight.save(tmp_path / "eight")

    table = write_table(tmp_path / "tickets", [(word, "billing") for word in WORDS])
    found = evaluate(tmp_path / "eight", table, reference=imported.folder, limit=3)

    assert [(each.dataset, each.precision) for each in found] == [
        ("tickets/test, first 3", precision) for precision in ("float32", "int8")
    ]


def test_a_table_comes_before_data_sets_and_changes_no_temperature(sentiment: TinyPackage, tmp_path: Path) -> None:
    others = [{"dataset": "other/test", "name": "bag of words, linear", "accuracy": 0.5}]
    package = with_manifest(sentiment, tmp_path / "calibrated", calibration=CALIBRATION, baselines=others)
    table = write_table(tmp_path / "mine", [(word, "positive") for word in WORDS])

    assert [figure.dataset for figure in evaluate(package, table)] == ["mine/test"]
    manifest = Manifest.load(package)
    assert manifest.temperature == 2.0
    assert {each.dataset for each in manifest.baselines} == {"other/test", "mine/test"}
    assert {each.dataset for each in manifest.slices} == {"mine/test"}


@pytest.mark.parametrize(
    ("made_as", "changes", "reason"),
    [
        ("fashion", {}, "it reads images, and a table has texts"),
        ("entailment", {"entailment": {"entails": 0, "contradicts": 2}}, "it reads pairs of texts"),
        ("sentiment", {"activation": "sigmoid"}, "its activation is sigmoid, not softmax, so that its labels do not"),
    ],
)
def test_what_a_table_cannot_measure_is_refused_with_the_reason(
    made_as: str, changes: dict[str, Any], reason: str, make_package: MakePackage, tmp_path: Path
) -> None:
    package = with_manifest(make_package(made_as), tmp_path / "other", **changes)

    with pytest.raises(PackageError, match=f"other: it cannot be measured with a table of your own: {reason}"):
        evaluate(package, write_table(tmp_path / "mine", [("a text", "positive")]))


def test_a_label_that_the_package_lacks_is_named_before_anything_is_measured(
    imported: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluation, "run_texts", lambda *_: pytest.fail("measured"))
    table = write_table(tmp_path / "mine", [("a text", "billing"), ("another", "Billing")])

    words = r"test\.csv, line 3: label is 'Billing'; there are hardware, billing"
    with pytest.raises(DataError, match=words):
        evaluate(imported.folder, table)


def test_a_folder_without_a_table_is_told_what_one_is(imported: TinyPackage, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no test data with the labels of imported, .* \(test\.csv, \.tsv or \.jsonl,"):
        evaluate(imported.folder, tmp_path)


def test_a_library_for_the_diagram_is_missed_before_anything_is_measured(
    imported: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_table(tmp_path / "mine", [("a text", "billing")])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (figure,) = evaluate(Path(shutil.copytree(imported.folder, tmp_path / "bounded")), table, limit=1)
    assert figure.dataset == "mine/test, first 1"  # of which nothing is drawn

    monkeypatch.setattr(Evaluation, "run_texts", lambda *_: pytest.fail("measured"))
    with pytest.raises(ModuleNotFoundError):
        evaluate(imported.folder, table)


def test_a_package_that_learned_labels_in_another_form_is_measured_by_its_own_order(
    sentiment: TinyPackage, tmp_path: Path
) -> None:
    decomposed = unicodedata.normalize("NFD", "é")  # before f, and behind it as one letter
    learned = {"recipe": "finetune-classify", "minutes": 0.1}
    folder = with_manifest(sentiment, tmp_path / "earlier", labels=[decomposed, "f"], training=learned)
    table = write_table(tmp_path / "mine", [("one", decomposed), ("two", "f")])
    (table / "train.csv").write_text(f"text,label\na,{decomposed}\nb,f\n")

    (read,) = _own(table, Manifest.load(folder)).tests.values()

    assert list(read(table)) == [("one", 0), ("two", 1)]
