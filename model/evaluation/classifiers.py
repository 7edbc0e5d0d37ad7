"""What is measured of a classifier: how often it is right and where, how sure it may be, what it gets wrong."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.evaluation.baselines import bag_of_words, share_of_commonest
from model.evaluation.calibration import (
    by_confidence,
    draw_reliability,
    expected_calibration_error,
    fit_temperature,
    probabilities,
    sigmoid,
)
from model.evaluation.opened import Evaluation, Measured
from model.evaluation.own_table import check_measurable
from model.package import (
    Baseline,
    Calibration,
    CalibrationError,
    Entailment,
    Figure,
    Manifest,
    PackageError,
    Slice,
    WrongAnswer,
)
from model.package.images import normalised
from model.package.manifest import RELIABILITY_FILE
from model.training import nli, own_labels, readers, sentiment
from model.training.files import SplitOrTest
from model.training.own_files import has_part

Read = Callable[[Path], Iterable[tuple[Any, int]]]

WRONG_ANSWERS = 5  # of each data set
LEAST_FITTED = 100  # rows of validation data that tell a temperature; of few without a mistake it would be next to 0
MAX_INPUT_LENGTH = 200  # characters of those
NEWS = 1000  # that are sorted into labels of a request


@dataclass(frozen=True)
class Labelled:
    """What a package with some labels is tested on, and what its temperature is fitted on."""

    tests: dict[str, Read]
    validation: tuple[str, Read] | None = None  # what it is, in words; none: the temperature stays as it is
    read_train: Read | None = None  # what a bag of words learns from, where one is to be beaten


DATA: dict[tuple[str, ...], Labelled] = {
    sentiment.SENTIMENTS: Labelled(
        {
            "sst2/test": lambda data: sentiment.read_labelled(data / "sst2" / "test.tsv.xz"),
            "imdb/test": lambda data: sentiment.read_labelled(data / "imdb" / "test.jsonl.xz"),
        },
        (
            f"sst2/dev, and the first {sentiment.VALIDATION_REVIEWS:,} of imdb/train, which are not trained on",
            lambda data: sentiment.read_sentiment(data, "validation"),
        ),
    ),
    readers.SPAM: Labelled(
        {"sms_spam/test": lambda data: readers.read_spam(data, "test")},
        ("sms_spam/validation", lambda data: readers.read_spam(data, "validation")),
    ),
    readers.TOPICS: Labelled(
        {"dbpedia14_subset/test": lambda data: readers.read_topics(data, "test")},
        ("dbpedia14_subset/validation", lambda data: readers.read_topics(data, "validation")),
    ),
    nli.ENTAILMENTS: Labelled(
        {
            "nli_mix/test_snli": lambda data: nli.read_entailment_file(data, "test_snli"),
            "nli_mix/test_mnli_dev_matched": lambda data: nli.read_entailment_file(data, "test_mnli_dev_matched"),
        },
        ("nli_mix/validation", lambda data: nli.read_entailment(data, "validation")),
        lambda data: nli.read_entailment(data, "train"),
    ),
    readers.CLOTHES: Labelled(
        {"fashion_mnist/test": lambda data: readers.read_clothes(data, "test")},
        (
            f"the last {readers.VALIDATION_IMAGES:,} of fashion_mnist/train, which are not trained on",
            lambda data: readers.read_clothes(data, "validation"),
        ),
    ),
}


@dataclass(frozen=True)
class Answered:
    """A data set, and what a classifier says of its rows."""

    dataset: str
    inputs: Sequence[Any]
    truth: NDArray[np.int64]  # (N,)
    logits: NDArray[np.float32]  # (N, labels)
    lengths: NDArray[np.int64] | None  # (N,) in tokens, as they are read; of texts
    cut: int = 0  # how many are longer than what is read of them

    @property
    def is_right(self) -> NDArray[np.bool_]:
        """Whether each answer is right, (N,)."""
        return self.logits.argmax(-1) == self.truth


def evaluate_classifier(evaluation: Evaluation) -> Measured:
    """Measure accuracy on the test data that have these labels, and F1 where one of two labels is to be found.

    Without `limit`, also measures the card. No temperature is fitted with under 100 validation rows, or without a wrong
    answer; without validation data, as beside a table of the user's own, the one there is stays.
    """
    manifest = evaluation.manifest
    data = _data_for(evaluation.data, manifest)
    is_softmax = manifest.activation == "softmax"  # else scores are no probabilities of labels that exclude one another
    if is_softmax and evaluation.limit is None:
        import_module("matplotlib")  # draws the card's diagram: better missing now than after minutes
    tests = [_answered(evaluation, dataset, read) for dataset, read in data.tests.items()]
    figures = [figure for test in tests for figure in _figures(evaluation, test)]
    if manifest.entailment is not None:
        figures.append(_into_labels(evaluation, manifest.entailment))
    remarks = [_remark(test, manifest) for test in tests if test.cut]
    if evaluation.limit is not None:
        return Measured(figures, remarks=remarks)
    temperature, calibration = manifest.temperature, manifest.calibration
    if data.validation is not None:
        calibration = _calibration(evaluation, *data.validation, tests)
        temperature = 1.0 if calibration is None else calibration.temperature
    fields: dict[str, Any] = {
        "baselines": _baselines(evaluation, data, tests),
        "slices": [part for test in tests for part in slices(test, manifest.labels)],
        "wrong_answers": [answer for test in tests for answer in wrong_answers(test, manifest, temperature)],
        "calibration": calibration,
    }
    files = {RELIABILITY_FILE: _diagram(tests, temperature)} if is_softmax else {}
    return Measured(figures, fields, files, remarks)


def _data_for(data: Path, manifest: Manifest) -> Labelled:
    """Return what a classifier is tested on: where it was fine-tuned, a table of the user's own, or a data set."""
    if manifest.training is not None and manifest.training.recipe == own_labels.RECIPE:
        return _own(data, manifest)
    labels = tuple(manifest.labels)
    if labels in DATA and not has_part(data, "test"):
        return DATA[labels]
    check_measurable(data, manifest)
    return Labelled({f"{data.resolve().name}/test": lambda data: own_labels.read_tested(data, manifest.labels)})


def _calibration(evaluation: Evaluation, fitted_on: str, read: Read, tests: Sequence[Answered]) -> Calibration | None:
    """Fit a temperature on validation data; none where they cannot tell one."""
    validation = _answered(evaluation, fitted_on, read)
    is_softmax = evaluation.manifest.activation == "softmax"
    if not is_softmax or len(validation.truth) < LEAST_FITTED or validation.is_right.all():
        return None
    temperature = fit_temperature(validation.logits, validation.truth)
    return Calibration(
        temperature=round(temperature, 4),
        fitted_on=fitted_on,
        rows=len(validation.truth),
        errors=[_calibration_error(test, temperature) for test in tests],
    )


def _own(data: Path, manifest: Manifest) -> Labelled:
    """Return what a classifier of labels of the user's own is tested on, in the folder it was trained on."""
    found = own_labels.labels_of(data)
    composed = [unicodedata.normalize("NFC", label) for label in manifest.labels]
    if sorted(found) != sorted(composed):
        raise PackageError(f"{data}: its labels are {', '.join(found)}; the package has {', '.join(manifest.labels)}")
    if manifest.training is not None and manifest.training.data:  # older packages do not tell
        own_labels.check_unlearned(data, manifest.training.data)
    name = data.resolve().name
    # Without a test set, what the best step was chosen by is measured, and told by its name.
    measured: SplitOrTest = "test" if has_part(data, "test") else "validation"
    # Older packages were not told labels in NFC, which may come in another order.
    numbers = [composed.index(label) for label in found]

    def read(data: Path, split: SplitOrTest) -> list[tuple[str, int]]:
        return [(text, numbers[label]) for text, label in own_labels.read_own_texts(data, split)]

    return Labelled(
        {f"{name}/{measured}": lambda data: read(data, measured)},
        (f"{name}/validation", lambda data: read(data, "validation")),
        lambda data: read(data, "train"),
    )


def _answered(evaluation: Evaluation, dataset: str, read: Read) -> Answered:
    rows = list(islice(read(evaluation.data), evaluation.limit))
    inputs, truth = [row for row, _ in rows], np.array([label for _, label in rows], np.int64)
    image = evaluation.manifest.image
    if image is None:
        logits, lengths = evaluation.run_texts(inputs, "logits")
        longest = evaluation.manifest.limits.max_input_tokens
        return Answered(dataset, inputs, truth, logits, np.minimum(lengths, longest), int((lengths > longest).sum()))
    batches = [np.stack(inputs[start : start + 256])[:, None] for start in range(0, len(inputs), 256)]
    found = [evaluation.graphs["encoder"].run({"pixels": normalised(batch, image)})["logits"] for batch in batches]
    return Answered(dataset, inputs, truth, np.concatenate(found), None)


def _remark(test: Answered, manifest: Manifest) -> str:
    return (
        f"{test.dataset}: {test.cut:,} of {len(test.truth):,} texts are longer than {manifest.limits.max_input_tokens} "
        "tokens, and were measured by what is read of them; a server refuses such texts unless a request has them "
        "truncated"
    )


def _figures(evaluation: Evaluation, test: Answered) -> list[Figure]:
    figures = [evaluation.figure(test.dataset, "accuracy", float(test.is_right.mean()))]
    if tuple(evaluation.manifest.labels) == readers.SPAM:
        predicted = test.logits.argmax(-1)
        right = float(np.sum((predicted == 1) & (test.truth == 1)))
        f1 = 2 * right / max(1.0, float(np.sum(predicted == 1) + np.sum(test.truth == 1)))
        figures.append(evaluation.figure(test.dataset, "F1 of spam", f1))
    return figures


def _into_labels(evaluation: Evaluation, entailment: Entailment) -> Figure:
    """Measure how often news are sorted right into labels of a request, as serving does it for a single one."""
    rows = nli.read_news(evaluation.data, min(evaluation.limit or NEWS, NEWS))
    hypotheses = [entailment.template.replace("{}", name) for name in nli.NEWS.values()]
    logits, _ = evaluation.run_texts([(text, hypothesis) for text, _ in rows for hypothesis in hypotheses], "logits")
    found = logits.reshape(len(rows), len(hypotheses), -1)[..., entailment.entails].argmax(-1)
    right = float(np.mean(found == np.array([label for _, label in rows])))
    return evaluation.figure_of(f"ag_news_subset/test, {len(rows):,} of it", "zero-shot accuracy into 4 labels", right)


def _baselines(evaluation: Evaluation, data: Labelled, tests: Sequence[Answered]) -> list[Baseline]:
    found = [("always its commonest label", test, share_of_commonest(test.truth.tolist())) for test in tests]
    if data.read_train is not None:
        rows = [list(zip(test.inputs, test.truth.tolist(), strict=True)) for test in tests]
        shares = bag_of_words(list(data.read_train(evaluation.data)), rows)
        found += [("bag of words, linear", test, share) for test, share in zip(tests, shares, strict=True)]
    return [Baseline(dataset=test.dataset, name=name, accuracy=round(share, 4)) for name, test, share in found]


def slices(test: Answered, labels: Sequence[str]) -> list[Slice]:
    """Return the accuracy on the quarters of a data set by length, where it has texts, and on each true label."""
    parts: dict[str, NDArray[np.bool_]] = {}
    if test.lengths is not None:
        first = test.lengths.min()
        for last in np.unique(np.quantile(test.lengths, [0.25, 0.5, 0.75, 1], method="lower")):
            parts[f"{first} to {last} tokens"] = (first <= test.lengths) & (test.lengths <= last)
            first = last + 1
    parts |= {f"true label {label}": test.truth == number for number, label in enumerate(labels)}
    return [
        Slice(
            dataset=test.dataset, part=name, rows=int(rows.sum()), accuracy=round(float(test.is_right[rows].mean()), 4)
        )
        for name, rows in parts.items()
        if rows.any()
    ]


def wrong_answers(test: Answered, manifest: Manifest, temperature: float) -> list[WrongAnswer]:
    """Return some wrong answers, evenly from the whole data set, so that nobody picks them.

    Their scores are those that serving gives. Where it gives raw numbers, none are returned.
    """
    if manifest.activation == "none":
        return []
    wrong = np.flatnonzero(~test.is_right)
    chosen = wrong[np.linspace(0, len(wrong) - 1, min(len(wrong), WRONG_ANSWERS)).astype(int)]
    is_softmax, logits = manifest.activation == "softmax", test.logits[chosen]
    scores = probabilities(logits, temperature) if is_softmax else sigmoid(logits)
    return [
        WrongAnswer(
            dataset=test.dataset,
            input=_shown(test.inputs[index], index),
            truth=manifest.labels[test.truth[index]],
            answer=manifest.labels[row.argmax()],
            score=round(float(row.max()), 4),
        )
        for index, row in zip(chosen.tolist(), scores, strict=True)
    ]


def _shown(given: Any, index: int) -> str:
    if not isinstance(given, str | tuple):
        return f"image {index}"
    text = given if isinstance(given, str) else " / ".join(given)
    return text if len(text) <= MAX_INPUT_LENGTH else f"{text[:MAX_INPUT_LENGTH].rstrip()} …"


def _calibration_error(test: Answered, temperature: float) -> CalibrationError:
    before, after = (
        expected_calibration_error(probabilities(test.logits, each), test.truth) for each in (1.0, temperature)
    )
    return CalibrationError(dataset=test.dataset, before=round(before, 4), after=round(after, 4))


def _diagram(tests: Sequence[Answered], temperature: float) -> bytes:
    """Return the reliability diagram, before and over the temperature."""
    ways = {"before": 1.0} | ({f"over {temperature:.2f}": temperature} if temperature != 1.0 else {})
    return draw_reliability(
        {
            test.dataset: {
                way: by_confidence(probabilities(test.logits, each), test.truth) for way, each in ways.items()
            }
            for test in tests
        }
    )
