"""Classifiers of texts into labels of the user's own."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model.commands.app import app
from model.export.unpack import unpack
from model.package import Manifest
from model.package.files import sha256_of
from model.sizes import SIZES
from model.training import own_labels
from model.training.errors import DataError
from model.training.own_labels import check_unlearned, labels_of, own_classifier, read_own_texts, read_tested
from tests.conftest import TINY, MakePackage, with_manifest
from tests.model.data_files import write_csv

ROWS = [("the film was good", "praise"), ("the dog was red", "other"), ("not so good", "blame")] * 11
ORDER = [(text, ("blame", "other", "praise").index(label)) for text, label in ROWS[:3]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Texts with three labels."""
    folder = tmp_path / "My Letters"
    write_csv(folder, "train", [(f"{text} {number}", label) for number, (text, label) in enumerate(ROWS)])
    write_csv(folder, "test", ROWS[:6])
    return folder


def test_every_tenth_text_of_a_label_is_validated_on_where_there_is_no_file_for_it(data: Path) -> None:
    train, validation = read_own_texts(data, "train"), read_own_texts(data, "validation")

    assert labels_of(data) == ("blame", "other", "praise")
    assert validation == [(f"{text} {27 + place}", label) for place, (text, label) in enumerate(ORDER)]
    assert len(train) == len(ROWS) - len(validation) and not set(train) & set(validation)


def test_labels_of_which_few_texts_are_there_are_trained_on_whole(tmp_path: Path) -> None:
    write_csv(tmp_path, "train", [*((f"good {number}", "often") for number in range(20)), ("bad", "once")])

    assert [label for _, label in read_own_texts(tmp_path, "validation")] == [0, 0]
    assert ("bad", 1) in read_own_texts(tmp_path, "train")


def test_nothing_left_to_train_or_to_validate_on_is_told(tmp_path: Path) -> None:
    write_csv(tmp_path, "train", [("good", "often"), ("fine", "often"), ("bad", "once")])
    with pytest.raises(DataError, match=r"no label has 10 texts, of which one would be kept for validation"):
        read_own_texts(tmp_path, "validation")
    write_csv(tmp_path, "test", [("bad", "once")])
    with pytest.raises(DataError, match=r"every text with label 'once' is validated or tested on, too"):
        read_own_texts(tmp_path, "train")
    write_csv(tmp_path, "validation", [(" BAD", "once")])
    with pytest.raises(DataError, match=r"validation\.csv: there are no texts in it that are not tested on"):
        read_own_texts(tmp_path, "validation")
    write_csv(tmp_path, "test", [])
    with pytest.raises(DataError, match=r"test\.csv: there are no texts in it"):
        read_own_texts(tmp_path, "test")


def test_what_is_tested_or_validated_on_is_not_trained_on(data: Path) -> None:
    write_csv(data, "test", [("the film was good 0", "praise")])
    write_csv(data, "validation", [("the dog was red 1", "other")])

    texts = [text for text, _ in read_own_texts(data, "train")]

    assert read_own_texts(data, "validation") == [("the dog was red 1", 1)]
    assert len(texts) == len(ROWS) - 2 and not {"the film was good 0", "the dog was red 1"} & set(texts)


def test_texts_that_differ_in_case_or_spaces_are_the_same(data: Path) -> None:
    write_csv(data, "test", [(" The film  was GOOD 0", "praise"), ("the dog was red 28", "other")])
    train, validation = (read_own_texts(data, split) for split in ("train", "validation"))

    assert "the film was good 0" not in [text for text, _ in train]
    assert "the dog was red 28" not in [text for text, _ in validation] and len(validation) == 2


def test_texts_that_differ_in_how_accents_are_written_are_the_same(tmp_path: Path) -> None:
    texts = ["Crème brûlée", "Ein schöner Tag", "niño", "ok", "well"]
    write_csv(tmp_path, "train", [(text, "ab"[place % 2]) for place, text in enumerate(texts)])
    write_csv(tmp_path, "test", [(unicodedata.normalize("NFD", texts[0]), "a"), ("Ein schoner Tag", "b")])

    assert [text for text, _ in read_own_texts(tmp_path, "train")] == texts[1:]  # other letters are another text


def test_texts_that_differ_in_signs_are_others(tmp_path: Path) -> None:
    write_csv(tmp_path, "train", [(":-)", "good"), (":-(", "bad"), ("?", "bad"), ("ok", "good")])
    write_csv(tmp_path, "test", [(":-)", "good"), ("?", "bad")])

    assert read_own_texts(tmp_path, "train") == [(":-(", 0), ("ok", 1)]


def test_columns_without_a_name_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label,,\na,one,,\nb,two,,\n")

    assert read_own_texts(tmp_path, "train") == [("a", 0), ("b", 1)]


def test_what_is_kept_for_validation_does_not_depend_on_what_is_tested_on(data: Path) -> None:
    kept = read_own_texts(data, "validation")
    write_csv(data, "test", [("the film was good 0", "praise"), (kept[0][0], "blame")])

    assert read_own_texts(data, "validation") == kept[1:]


def test_labels_that_differ_by_spaces_alone_are_one(tmp_path: Path) -> None:
    write_csv(tmp_path, "train", [("a", "one"), ("b", " one "), ("c", "two")])

    assert labels_of(tmp_path) == ("one", "two")
    assert [label for _, label in read_own_texts(tmp_path, "train")] == [0, 0, 1]


def test_labels_whose_accents_are_coded_in_two_ways_are_one(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Café") for form in ("NFC", "NFD"))
    write_csv(tmp_path, "train", [("a", composed), ("b", decomposed), ("c", "Bar")])
    write_csv(tmp_path, "test", [("d", decomposed)])

    assert labels_of(tmp_path) == ("Bar", composed)
    assert [label for _, label in read_own_texts(tmp_path, "train")] == [1, 1, 0]
    assert read_tested(tmp_path, ["Bar", decomposed]) == [("d", 1)]  # of a package that was imported


@pytest.mark.parametrize(
    "name",
    [
        "test.csv.gz",
        "test.parquet",
        "Test.csv",
        "test.json",
        "dev.csv",
        "val.tsv",
        "valid.jsonl",
        "train_2.csv",
        "tests.csv",
        "testSet.txt",
    ],
)
def test_files_that_are_called_as_a_part_and_are_not_read_are_refused(name: str, data: Path) -> None:
    (data / name).write_bytes((data / "test.csv").read_bytes())

    for read in (own_classifier, labels_of, lambda folder: read_own_texts(folder, "train")):
        with pytest.raises(DataError, match=rf"{name} would not be read.* called train, validation, test, in small"):
            read(data)
    (data / name).rename(data / f"notes on {name}")
    for other in ("values.csv", "devices.csv", "train.log", "train.py", "test-results", "test.csv~"):
        (data / other).write_text("")
    assert read_own_texts(data, "train")


def test_a_label_that_training_has_not_is_refused(data: Path) -> None:
    write_csv(data, "test", [("good", "praise"), ("bad", "anger")])

    with pytest.raises(DataError, match=r"test\.csv, line 3: label is 'anger'; there are blame, other, praise"):
        read_own_texts(data, "train")


def test_a_folder_without_texts_and_one_with_two_tables_are_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(DataError, match=r"there is no train\.csv, \.tsv or \.jsonl, with columns text and label"):
        own_classifier(tmp_path)
    (data / "train.tsv").write_text("text\tlabel\n")
    with pytest.raises(DataError, match=r"there are train\.csv and train\.tsv; keep one of them"):
        own_classifier(data)


@pytest.mark.parametrize(("texts", "epochs"), [(40, 100), (960, 10), (100_000, 4)])
def test_few_texts_are_seen_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: int, epochs: float
) -> None:
    monkeypatch.setattr(own_labels, "labels_of", lambda _data: ("a", "b"))
    monkeypatch.setattr(own_labels, "read_own_texts", lambda _data, _split: [("text", 0)] * texts)

    recipe = own_classifier(tmp_path)

    assert recipe.epochs == epochs
    assert recipe.warmup_steps <= epochs * texts / 32 / 10


def test_own_labels_are_learned_exported_measured_and_unpacked(
    data: Path, tmp_path: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "mini-encoder", TINY["sentiment"])
    start = with_manifest(
        make_package("sentiment", "int8"),
        tmp_path / "sentiment",
        training={"recipe": "finetune-classify-sentences", "minutes": 2.0},
    )
    unpack(start, tmp_path / "start")

    def run(*arguments: object, status: int = 0) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == status, result.output + repr(result.exception)
        return result.output

    learn = ("train", "finetune-classify", "--data", data, "--out", tmp_path / "run", "--no-compile")
    assert "needs a run to begin with" in run(*learn, status=2)
    run(*learn, "--start-from", tmp_path / "start")
    run("export", "--run", tmp_path / "run", "--out", tmp_path / "package")
    told = run("evaluate", tmp_path / "package", "--data", data)

    manifest = Manifest.load(tmp_path / "package")
    assert (manifest.name, manifest.labels) == ("my-letters", ["blame", "other", "praise"])
    assert manifest.description == "Tells which of 3 labels a text has: blame, other, praise."
    assert [(each.dataset, each.metric) for each in manifest.evaluation] == [("My Letters/test", "accuracy")]
    assert manifest.evaluation[0].value >= 0.5  # a third by chance
    assert {each.name for each in manifest.baselines} == {"always its commonest label", "bag of words, linear"}
    assert "My Letters/test: bag of words, linear has an accuracy of " in told
    assert manifest.calibration is None  # of three texts it would be no more than a guess
    assert manifest.training_data[-1].name == "My Letters, 30 texts"
    assert manifest.training is not None and set(manifest.training.data) == {"train.csv", "test.csv"}
    unpack(tmp_path / "package", tmp_path / "again")
    run("export", "--run", tmp_path / "again", "--out", tmp_path / "exact", "--precision", "float32")
    assert Manifest.load(tmp_path / "exact").labels == manifest.labels
    assert Manifest.load(tmp_path / "exact").training == manifest.training
    (data / "test.csv").rename(tmp_path / "test.csv")
    run("evaluate", tmp_path / "package", "--data", data)  # of what is there
    assert Manifest.load(tmp_path / "package").evaluation[-1].dataset == "My Letters/validation"
    write_csv(data, "test", [*ROWS[:3], ("the film was good 0", "praise")])
    refused = CliRunner().invoke(app, ["evaluate", str(tmp_path / "package"), "--data", str(data)])
    assert isinstance(refused.exception, DataError)


def test_what_may_have_been_learned_is_no_test(data: Path) -> None:
    learned = {path.name: sha256_of(path) for path in data.iterdir()}
    check_unlearned(data, learned)
    write_csv(data, "test", [("never seen", "praise")])
    check_unlearned(data, learned)

    write_csv(data, "test", [("The dog was  RED 1", "other"), ("never seen", "praise")])
    with pytest.raises(DataError, match=r"test\.csv: the model has learned 1 of its texts, .* take them out"):
        check_unlearned(data, learned)
    write_csv(data, "validation", [("never seen", "praise")])
    with pytest.raises(DataError, match=r"validation\.csv: it is not the file that the model learned from"):
        check_unlearned(data, learned)
    beside_both = {path.name: sha256_of(path) for path in data.iterdir()}
    (data / "validation.csv").unlink()
    with pytest.raises(DataError, match="the model learned beside a file of validation, which is not there"):
        check_unlearned(data, beside_both)
