"""Deletion curves: how fast a label's score falls when the tokens that are said to matter most are taken away first.

The lower the mean of a curve, the more faithful the contributions; taken away last first, the higher the better
(DeYoung et al. 2020, ERASER: comprehensiveness and sufficiency).
"""

from __future__ import annotations

import csv
import lzma
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from loadtests.explanations.gradients import integrated_gradients, torch_model
from model.package import Manifest, PackageTokenizer
from model.package.manifest import TOKENIZER_FILE
from service.engine.arrays import Array
from service.engine.inputs import TextInput, collate
from service.engine.session import Session, SessionOptions
from service.tasks.explaining.contributions import Trial, contributions, leaving_one_out, orders_of
from service.tasks.scores import log_odds, softmax

DATA = {"sentiment": "sst2/test.tsv.xz", "topics": "dbpedia14_subset/test.tsv.xz", "spam": "sms_spam/test.tsv.xz"}
SHORTEST, LONGEST = 6, 66  # tokens
SHARES = np.linspace(0, 1, 11)
ROWS = 32  # read together

Method = Callable[[TextInput, list[int], int], Array]


class Classifier:
    """A package that says how likely a label is."""

    def __init__(self, folder: Path) -> None:
        self.manifest = Manifest.load(folder)
        self.tokenizer = PackageTokenizer.load(folder / TOKENIZER_FILE)
        self._graph = self.manifest.graphs["encoder"]
        self._session = Session(folder / self._graph.file, SessionOptions())

    def logits(self, rows: Sequence[TextInput]) -> Array:
        """Return the logits of texts (N, labels)."""
        order = sorted(range(len(rows)), key=lambda place: rows[place].tokens)
        found: dict[int, Array] = {}
        for first in range(0, len(order), ROWS):
            places = order[first : first + ROWS]
            inputs = collate([rows[place] for place in places], self.manifest.special_ids.pad, self._graph.inputs)
            (answers,) = self._session.run(inputs, self._graph.outputs)
            found |= dict(zip(places, answers, strict=True))
        return np.array([found[place] for place in range(len(rows))], np.float64)


def deletion_curves(folder: Path, data: Path, count: int) -> str:
    """Return a table of the methods: means of both curves, and milliseconds a text."""
    classifier, draw = Classifier(folder), np.random.default_rng(0)
    with lzma.open(data / DATA[folder.name], "rt", encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    draw.shuffle(texts)
    read = [classifier.tokenizer.encode(text) for text in texts]
    chosen = [each for each in read if SHORTEST <= len(each.ids) <= LONGEST][: count or None]
    methods = _methods(classifier, folder, draw)
    curves: dict[str, list[Array]] = {name: [] for name in methods}
    seconds = dict.fromkeys(methods, 0.0)
    for encoding in chosen:
        text = TextInput(encoding.ids, encoding.segment_ids)
        places = [place for place, special in enumerate(encoding.special) if not special]
        label = int(classifier.logits([text])[0].argmax())
        for name, method in methods.items():
            began = time.perf_counter()
            scores = method(text, places, label)
            seconds[name] += time.perf_counter() - began
            curves[name].append(_curves(classifier, text, places, scores, label))
    rows = [f"{folder.name}, {len(chosen)} texts", "method | most first | last first | ms a text"]
    for name, found in curves.items():
        falling, staying = np.mean(found, axis=0).mean(axis=1)
        rows.append(f"{name} | {falling:.3f} | {staying:.3f} | {1000 * seconds[name] / len(chosen):.0f}")
    return "\n".join(rows)


def _methods(classifier: Classifier, folder: Path, draw: np.random.Generator) -> Mapping[str, Method]:
    def asked(trial_of: Callable[[TextInput, list[int]], Trial]) -> Method:
        def method(text: TextInput, places: list[int], label: int) -> Array:
            trial = trial_of(text, places)
            return contributions(trial, log_odds(classifier.logits(trial.rows), label))

        return method

    model = torch_model(folder, classifier.manifest)

    def gradients(baseline: str) -> Method:
        token = classifier.tokenizer.id_of(baseline)
        return lambda text, places, label: integrated_gradients(model, text, places, label, token)

    return {
        "by chance": lambda _, places, __: draw.random(len(places)),
        "leave-one-out": asked(leaving_one_out),
        "shapley, 4 orders": asked(lambda text, places: orders_of(text, places, 4 * len(places))),
        "shapley, 10 orders": asked(lambda text, places: orders_of(text, places, 10 * len(places))),
        "integrated gradients from [PAD]": gradients("[PAD]"),
        "integrated gradients from [MASK]": gradients("[MASK]"),
    }


def _curves(classifier: Classifier, text: TextInput, places: list[int], scores: Array, label: int) -> Array:
    """Return a label's scores (2, shares): without the tokens that matter most, and with these alone."""
    order = [places[number] for number in np.argsort(-scores, kind="stable")]
    counts = [round(share * len(order)) for share in SHARES]
    taken = [*(set(order[:count]) for count in counts), *(set(order[count:]) for count in counts)]
    rows = [[place for place in range(text.tokens) if place not in without] for without in taken]
    inputs = [TextInput([text.ids[n] for n in row], [text.segment_ids[n] for n in row]) for row in rows]
    return np.asarray(softmax(classifier.logits(inputs))[:, label].reshape(2, -1))
