"""What is measured of a classifier: how often it is right and where, how sure it may be, what it gets wrong."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.evaluation.baselines import bag_of_words, share_of_commonest
from model.evaluation.calibration import (
    Array,
    Mask,
    calibrate,
    check_drawing,
    judged,
    probabilities,
    reliability,
    sigmoid,
)
from model.evaluation.card import by_length, examples, shown, slices
from model.evaluation.opened import Evaluation, Measured
from model.evaluation.own_table import check_measurable
from model.package import (
    Baseline,
    Calibration,
    Entailment,
    Example,
    Figure,
    Manifest,
    PackageError,
    Slice,
)
from model.package.images import normalised
from model.package.manifest import RELIABILITY_FILE
from model.training import nli, own_labels, readers, sentiment
from model.training.files import SplitOrTest
from model.training.own_files import has_part

Read = Callable[[Path], Iterable[tuple[Any, int]]]

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

    def judged(self, temperature: float) -> tuple[Array, Mask]:
        """Return the answers' scores at a temperature, and whether they are right, (N,)."""
        return judged(probabilities(self.logits, temperature), self.truth)


def evaluate_classifier(evaluation: Evaluation) -> Measured:
    """Measure accuracy on the test data that have these labels, and F1 where one of two labels is to be found.

    Without `limit`, also measures the card. No temperature is fitted with under 100 validation rows, or without a wrong
    answer; without validation data, as beside a table of the user's own, the one there is stays.
    """
    manifest = evaluation.manifest
    data = _data_for(evaluation.data, manifest)
    is_softmax = manifest.activation == "softmax"  # else scores are no probabilities of labels that exclude one another
    if is_softmax and evaluation.limit is None:
        check_drawing()
    tests = [_answered(evaluation, dataset, read) for dataset, read in data.tests.items()]
    figures = [figure for test in tests for figure in _figures(evaluation, test)]
    if manifest.entailment is not None:
        figures.append(_into_labels(evaluation, manifest.entailment))
    remarks = [_remark(test, manifest) for test in tests if test.cut]
    if evaluation.limit is not None:
        return Measured(figures, remarks=remarks)
    calibration = manifest.calibration
    if data.validation is not None:
        calibration = _calibration(evaluation, *data.validation, tests)
    manifest = manifest.model_copy(update={"calibration": calibration})
    shown_of = [examples_of(test, manifest, len(tests)) for test in tests]
    fields: dict[str, Any] = {
        "baselines": _baselines(evaluation, data, tests),
        "slices": [part for test in tests for part in slices_of(test, manifest.labels)],
        "examples": [each for unpicked, _ in shown_of for each in unpicked],
        "wrong_answers": [each for _, wrong in shown_of for each in wrong],
        "calibration": calibration,
    }
    judges = {test.dataset: test.judged for test in tests}
    files = {RELIABILITY_FILE: reliability(judges, manifest.temperature)} if is_softmax else {}
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
    if evaluation.manifest.activation != "softmax":
        return None
    validation = _answered(evaluation, fitted_on, read)
    return calibrate(validation.logits, validation.truth, fitted_on, {test.dataset: test.judged for test in tests})


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


def slices_of(test: Answered, labels: Sequence[str]) -> list[Slice]:
    """Return the accuracy on the quarters of a data set by length, where it has texts, and on each true label."""
    parts = {} if test.lengths is None else by_length(test.lengths)
    parts |= {f"true label {label}": test.truth == number for number, label in enumerate(labels)}
    return slices(test.dataset, "accuracy", parts, lambda rows: float(test.is_right[rows].mean()))


def examples_of(test: Answered, manifest: Manifest, datasets: int) -> tuple[list[Example], list[Example]]:
    """Return answers to some rows, and some wrong answers, with the scores that serving gives.

    Where it gives raw numbers, which no label is the answer of, none are returned.
    """
    if manifest.activation == "none":
        return [], []

    def example(row: int) -> Example:
        is_softmax, logits = manifest.activation == "softmax", test.logits[[row]]
        (scores,) = probabilities(logits, manifest.temperature) if is_softmax else sigmoid(logits)
        return Example(
            dataset=test.dataset,
            input=_shown(test.inputs[row], row),
            truth=manifest.labels[test.truth[row]],
            answer=manifest.labels[scores.argmax()],
            score=round(float(scores.max()), 4),
        )

    return examples(len(test.truth), datasets, np.flatnonzero(~test.is_right), example)


def _shown(given: Any, row: int) -> str:
    if not isinstance(given, str | tuple):
        return f"image {row}"
    return shown(given if isinstance(given, str) else " / ".join(given))
