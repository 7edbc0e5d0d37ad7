"""What is measured of a tagger: how many entities it finds, and where, how sure it may be, what it takes for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from model.evaluation.calibration import Array, Mask, calibrate, check_drawing, judged, probabilities, reliability
from model.evaluation.card import by_length, examples, shown, slices
from model.evaluation.graph_model import GraphModel, plain_tokenizer
from model.evaluation.opened import BATCH_TOKENS, Evaluation, Measured
from model.package import Example, PackageError
from model.package.manifest import RELIABILITY_FILE
from model.training import readers
from model.training.errors import DataError
from model.training.objectives import Tag
from model.training.objectives.objective import IGNORED
from model.training.objectives.tag import Compared, Entity

Sentence = tuple[list[str], list[str]]  # words, and their tags
VALIDATION = "every tenth of wikigold, which is not trained on"


@dataclass(frozen=True)
class Tagged:
    """A data set, and what a tagger says of its sentences and of their words."""

    dataset: str
    rows: Sequence[Sentence]
    objective: Tag
    compared: Sequence[Compared]  # of each sentence
    lengths: NDArray[np.int64]  # (N,) of sentences in tokens
    logits: NDArray[np.float32]  # (W, labels) of all words
    truth: NDArray[np.int64]  # (W,)

    def judged(self, temperature: float) -> tuple[Array, Mask]:
        """Return the scores of words that are taken for a part of an entity, and whether the tag is right.

        Those of the others are in no answer.
        """
        confidence, right = judged(probabilities(self.logits, temperature), self.truth)
        is_told = self.logits.argmax(-1) != readers.TAGS.index("O")
        return confidence[is_told], right[is_told]

    def f1(self, rows: Mask) -> float:
        """Return the F1 of whole entities in some of the sentences."""
        return self.objective.summarise([[self.compared[row] for row in np.flatnonzero(rows).tolist()]])["entity F1"]

    def example(self, row: int) -> Example:
        """Return a sentence with its entities, as they were found and as they are."""
        text = " ".join(self.rows[row][0])
        encoding = self.objective.tokenizer.encode(text)
        spans: dict[int, tuple[int, int]] = {}  # of the tokenizer's words, in characters
        for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
            if word is not None:
                spans[word] = (spans.get(word, (start, end))[0], end)
        words = list(spans.values())

        def told(entities: Iterable[Entity]) -> str:
            found = (f"{text[words[first][0] : words[end - 1][1]]} ({kind})" for first, end, kind in sorted(entities))
            return ", ".join(found) or "none"

        found, true = self.compared[row]
        return Example(dataset=self.dataset, input=shown(text), truth=told(true), answer=told(found))


def evaluate_tagger(evaluation: Evaluation) -> Measured:
    """Measure precision, recall and F1 of whole entities, on Wikipedia and on what is new and rare in social media.

    Without `limit`, also measures the card; its calibration is of single words.
    """
    manifest, data = evaluation.manifest, evaluation.data
    if tuple(manifest.labels) != readers.TAGS:
        raise PackageError(f"{manifest.name}: there is no test data with its labels here")
    if evaluation.limit is None:
        check_drawing()
    tests = [
        _tagged(evaluation, "wikigold/every tenth from the sixth", readers.read_entities(data, "test")),
        _tagged(evaluation, "wnut17/test", readers.read_emerging_entities(data)),
    ]
    figures = [
        evaluation.figure(test.dataset, metric, value)
        for test in tests
        for metric, value in test.objective.summarise([test.compared]).items()
    ]
    if evaluation.limit is not None:
        return Measured(figures)
    judges = {test.dataset: test.judged for test in tests}
    calibration = manifest.calibration
    if manifest.training is not None:  # of another's training it is not known what it left out
        validation = _tagged(evaluation, VALIDATION, readers.read_entities(data, "validation"))
        calibration = calibrate(validation.logits, validation.truth, VALIDATION, judges)
    encyclopedia = tests[0]  # what people post is not quoted: nobody has looked at it
    wrong = [row for row, (found, true) in enumerate(encyclopedia.compared) if found != true]
    unpicked, mistaken = examples(len(encyclopedia.rows), 1, wrong, encyclopedia.example)
    fields = {
        "calibration": calibration,
        "slices": [
            part for test in tests for part in slices(test.dataset, "entity F1", by_length(test.lengths), test.f1)
        ],
        "examples": unpicked,
        "wrong_answers": mistaken,
    }
    temperature = 1.0 if calibration is None else calibration.temperature
    return Measured(figures, fields, {RELIABILITY_FILE: reliability(judges, temperature)})


def _tagged(evaluation: Evaluation, dataset: str, sentences: Iterable[Sentence]) -> Tagged:
    manifest, rows = evaluation.manifest, list(islice(sentences, evaluation.limit))
    if not rows:
        raise DataError(f"{evaluation.data}: {dataset} has no sentence to measure with")
    objective = Tag(plain_tokenizer(evaluation), manifest.limits.max_input_tokens, manifest.labels)
    objective.encode(rows)
    model, compared = GraphModel(evaluation.graphs["encoder"]), [Compared(set(), set())] * len(rows)
    logits, truth = [], []
    for indices in objective.batches(BATCH_TOKENS, None):
        batch = objective.collate(indices)
        found = model(batch["input_ids"], batch["attention_mask"])
        counted = batch["targets"] != IGNORED
        logits.append(found[counted].numpy())
        truth.append(batch["targets"][counted].numpy())
        for index, each in zip(indices, objective.compared(found, batch), strict=True):
            compared[index] = each
    lengths = np.array(objective.ids.lengths)
    return Tagged(dataset, rows, objective, compared, lengths, np.concatenate(logits), np.concatenate(truth))
