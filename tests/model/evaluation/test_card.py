"""The card of a classifier: what evaluation writes beside the figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from model.evaluation import calibration as calibrating
from model.evaluation.baselines import _words, bag_of_words, share_of_commonest
from model.evaluation.calibration import (
    LEAST_FITTED,
    expected_calibration_error,
    fit_temperature,
    judged,
    probabilities,
)
from model.evaluation.classifiers import Answered, Labelled, _baselines, examples_of, slices_of
from model.evaluation.evaluate import evaluate
from model.evaluation.opened import Evaluation
from model.package import Manifest
from model.package.manifest import RELIABILITY_FILE
from model.training import readers
from tests.conftest import TEXTS, TinyPackage
from tests.model.data_files import write_xz
from tests.model.evaluation.test_evaluate import balanced, logits_of

WORDS = sorted({word for text in TEXTS for word in text.split()})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Messages of one to five words, as likely spam as not."""
    rng = np.random.default_rng(0)
    for split, count in (("validation", LEAST_FITTED), ("test", 60)):
        texts = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(count)]
        rows = "".join(f"{text}\t{readers.SPAM[rng.integers(2)]}\n" for text in texts)
        write_xz(tmp_path / "data" / "sms_spam" / f"{split}.tsv.xz", f"text\tlabel\n{rows}")
    return tmp_path / "data"


def test_a_card_tells_what_the_answers_are_worth(sentiment: TinyPackage, data: Path, tmp_path: Path) -> None:
    package = balanced(sentiment, WORDS, tmp_path / "spam")
    evaluate(package.folder, data)

    manifest = Manifest.load(package.folder)  # which compares the diagram with its hash
    rows = {split: readers.read_spam(data, split) for split in ("validation", "test")}
    logits = {split: np.concatenate([logits_of(package, text) for text, _ in found]) for split, found in rows.items()}
    truth = {split: np.array([label for _, label in found]) for split, found in rows.items()}
    temperature = fit_temperature(logits["validation"], truth["validation"])
    calibration = manifest.calibration
    assert calibration is not None and calibration.temperature == pytest.approx(temperature, rel=0.01)
    assert (calibration.fitted_on, calibration.rows) == ("sms_spam/validation", LEAST_FITTED)
    (error,) = calibration.errors
    expected = [
        expected_calibration_error(*judged(probabilities(logits["test"], each), truth["test"]))
        for each in (1.0, temperature)
    ]
    assert [error.before, error.after] == pytest.approx(expected, abs=0.02)  # an answer may fall into another bin
    accuracy = float((logits["test"].argmax(-1) == truth["test"]).mean())
    by_length = [part for part in manifest.slices if "tokens" in part.part]
    by_label = [part for part in manifest.slices if "label" in part.part]
    for parts in (by_length, by_label):
        assert sum(part.rows for part in parts) == 60
        assert sum(part.rows * part.value for part in parts) / 60 == pytest.approx(accuracy, abs=1e-3)
    assert manifest.baselines[0].accuracy == pytest.approx(max(np.bincount(truth["test"])) / 60, abs=1e-4)
    of = {text: readers.SPAM[label] for text, label in rows["test"]}
    assert (len(manifest.examples), len(manifest.wrong_answers)) == (20, 5)
    assert all(of[each.input] == each.truth for each in manifest.examples)
    assert 0 < sum(each.truth == each.answer for each in manifest.examples) < 20
    assert all(of[each.input] == each.truth != each.answer for each in manifest.wrong_answers)
    assert (package.folder / "reliability.png").read_bytes().startswith(b"\x89PNG")


def test_validation_data_that_are_few_tell_no_temperature(
    sentiment: TinyPackage, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = balanced(sentiment, WORDS, tmp_path / "spam")
    evaluate(package.folder, data)
    monkeypatch.setattr(calibrating, "LEAST_FITTED", LEAST_FITTED + 1)
    evaluate(package.folder, data)

    manifest = Manifest.load(package.folder)
    assert manifest.calibration is None and manifest.temperature == 1.0
    assert manifest.slices and manifest.baselines and (package.folder / RELIABILITY_FILE).exists()


def test_a_bounded_evaluation_leaves_the_card_as_it_was(sentiment: TinyPackage, data: Path, tmp_path: Path) -> None:
    package = balanced(sentiment, WORDS, tmp_path / "spam")
    evaluate(package.folder, data)
    before = Manifest.load(package.folder)

    evaluate(package.folder, data, limit=3)

    after = Manifest.load(package.folder)
    assert after.calibration == before.calibration and after.slices == before.slices
    assert {figure.dataset for figure in after.evaluation} == {"sms_spam/test", "sms_spam/test, first 3"}


def test_a_package_is_measured_again_on_other_data(sentiment: TinyPackage, data: Path, tmp_path: Path) -> None:
    package = balanced(sentiment, WORDS, tmp_path / "spam")
    evaluate(package.folder, data)
    before = Manifest.load(package.folder)
    write_xz(data / "sms_spam" / "test.tsv.xz", "text\tlabel\n" + "".join(f"{word}\tham\n" for word in WORDS))

    evaluate(package.folder, data)

    after = Manifest.load(package.folder)
    assert after.sha256["reliability.png"] != before.sha256["reliability.png"]
    assert {part.rows for part in after.slices if "label" in part.part} == {len(WORDS)}


def test_an_interruption_while_the_diagram_is_written_leaves_a_package_that_can_be_measured_again(
    sentiment: TinyPackage, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = balanced(sentiment, WORDS, tmp_path / "spam")
    evaluate(package.folder, data)

    def interrupted(path: Path, content: bytes) -> int:
        path.write_text(str(content[:100]))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            evaluate(package.folder, data)
    left = Manifest.load(package.folder)
    assert left.calibration is not None and RELIABILITY_FILE not in left.sha256

    evaluate(package.folder, data)
    assert RELIABILITY_FILE in Manifest.load(package.folder).sha256


def answered(lengths: list[int], truth: list[int], said: list[int]) -> Answered:
    inputs = [f"text {place}" for place in range(len(truth))]
    logits = np.eye(2, dtype=np.float32)[said]
    return Answered("set", inputs, np.array(truth), logits, np.array(lengths))


def test_quarters_by_length_hold_each_text_once() -> None:
    found = slices_of(answered(list(range(1, 9)), [0] * 8, [0] * 6 + [1] * 2), ["no", "yes"])

    told = [(part.part, part.rows, part.value) for part in found]
    assert told[-1] == ("true label no", 8, 0.75)  # and none of a label that is nowhere
    assert sum(rows for part, rows, _ in told if "tokens" in part) == 8
    assert told[0][2] == 1.0 and told[-2][2] < 0.5  # the longest are wrong


def test_the_commonest_label_is_that_of_what_is_tested_on(sentiment: TinyPackage, tmp_path: Path) -> None:
    found = _baselines(Evaluation(sentiment.folder, tmp_path), Labelled({}), [answered([4] * 3, [0, 0, 1], [0] * 3)])

    assert (found[0].name, found[0].accuracy) == ("always its commonest label", 0.6667)


def test_texts_of_one_length_are_one_part() -> None:
    (by_length, _) = slices_of(answered([4] * 5, [0] * 5, [0] * 5), ["no", "yes"])

    assert (by_length.part, by_length.rows) == ("4 to 4 tokens", 5)


def test_wrong_answers_come_from_the_whole_data_set(sentiment: TinyPackage) -> None:
    truth = [0, 1] * 50
    _, found = examples_of(answered([1] * 100, truth, [0] * 100), sentiment.manifest, 1)

    assert [answer.input for answer in found] == ["text 1", "text 25", "text 49", "text 73", "text 99"]
    assert {(answer.truth, answer.answer) for answer in found} == {("positive", "negative")}
    assert not examples_of(answered([1] * 4, [0] * 4, [0] * 4), sentiment.manifest, 1)[1]


@pytest.mark.parametrize(
    ("activation", "scores"), [("softmax", [0.7311, 0.7311]), ("sigmoid", [0.7311, 0.5]), ("none", [])]
)
def test_wrong_answers_have_the_scores_that_serving_gives(
    activation: str, scores: list[float], sentiment: TinyPackage
) -> None:
    manifest = sentiment.manifest.model_copy(update={"activation": activation})
    test = Answered("set", ["one", "two"], np.array([1, 1]), np.array([[1.0, 0.0], [0.0, -1.0]], np.float32), None)

    unpicked, wrong = examples_of(test, manifest, 1)
    assert [answer.score for answer in unpicked] == [answer.score for answer in wrong] == scores


def test_a_bag_of_words_learns_what_words_tell_and_no_order() -> None:
    rng = np.random.default_rng(0)
    nouns = ["dog", "cat", "ball", "film"]

    def row(words: list[str], label: int) -> tuple[tuple[str, str], int]:
        return (" ".join(rng.permutation(words)), str(rng.choice(words)) if label else "nobody sleeps"), label

    train, test = ([row(list(rng.choice(nouns, 3)), int(rng.integers(2))) for _ in range(count)] for count in (600, 80))

    (accuracy,) = bag_of_words(train, [test])

    assert accuracy == 1.0 > share_of_commonest([label for _, label in test])
    hopeless = [((text, text), int(rng.integers(2))) for (text, _), _ in test]
    assert bag_of_words(hopeless[:60], [hopeless[60:]])[0] < 0.9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 5 o'clock, it IS!", ["5", "clock", "is", "it", "o", "s"]),
        ("Cafe\u0301 ❤\ufe0f", ["caf\u00e9"]),
        ("यह अच्छी है", ["अच्छी", "यह", "है"]),
        ("好天气，tv好", ["tv", "天", "好", "气"]),
        (("a b", "b"), ["1 a", "1 b", "2 b", "both b"]),
    ],
)
def test_a_bag_has_the_words_of_any_script(text: str | tuple[str, str], words: list[str]) -> None:
    assert _words(text) == words


def test_validation_data_without_a_wrong_answer_tell_no_temperature(
    sentiment: TinyPackage, data: Path, tmp_path: Path
) -> None:
    package = balanced(sentiment, WORDS, tmp_path / "spam")
    texts = [text for text, _ in readers.read_spam(data, "validation")]
    said = [readers.SPAM[int(logits_of(package, text).argmax())] for text in texts]
    rows = "".join(f"{text}\t{label}\n" for text, label in zip(texts, said, strict=True))
    write_xz(data / "sms_spam" / "validation.tsv.xz", f"text\tlabel\n{rows}")

    evaluate(package.folder, data)

    assert Manifest.load(package.folder).calibration is None
