"""What is measured of an answerer: how well it answers, and what, how sure it may be, what it gets wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from model.evaluation.calibration import Array, Mask, calibrate_scores, check_drawing, probabilities, reliability
from model.evaluation.card import by_length, examples, shown, slices
from model.evaluation.graph_model import GraphModel, plain_tokenizer
from model.evaluation.opened import BATCH_TOKENS, Evaluation, Measured
from model.package import Example
from model.package.manifest import RELIABILITY_FILE
from model.training import readers
from model.training.objectives import Answer
from model.training.objectives.answer import Question, best_span

DATASET, VALIDATION = "squad11/dev", "squad11/train, its last articles, which are not trained on"
ASKED = ("what", "who", "when", "where", "which", "why", "how")


@dataclass(frozen=True)
class Window:
    """A window's logits (T, 2) of first and last tokens, and its best answer.

    Of the tokens only those count that serving asks: CLS, which stands for "no answer here", and the context's.
    """

    logits: NDArray[np.float32]
    best: tuple[int, int]
    text: str
    score: float  # of the best answer against those of other windows

    def confidence(self, temperature: float) -> float:
        """Return how likely the best answer is, as serving says it."""
        starts, ends = probabilities(self.logits.T, temperature)
        return float(starts[self.best[0]] * ends[self.best[1]])


@dataclass(frozen=True)
class Answered:
    """Questions, the best window of each, and how well it answers."""

    rows: Sequence[Question]
    best: Sequence[Window]  # of each question
    overlap: NDArray[np.float64]  # (N,) F1 of words
    is_exact: Mask  # (N,)

    def judged(self, temperature: float) -> tuple[Array, Mask]:
        """Return the answers' scores, and whether they match exactly, (N,)."""
        return np.array([window.confidence(temperature) for window in self.best]), self.is_exact

    def parts(self) -> dict[str, Mask]:
        """Return the questions by the word that asks, and by the lengths of their contexts."""
        words = [row.question.lower().split() for row in self.rows]
        asks = np.array([next((word for word in some if word in ASKED), "other") for some in words])
        contexts = np.array([len(row.context.split()) for row in self.rows])
        asked = {f"asks {word}": asks == word for word in (*ASKED, "other")}
        return asked | by_length(contexts, "words of context")

    def example(self, row: int, temperature: float) -> Example:
        """Return a question with its answer, and those that people gave."""
        asked, window = self.rows[row], self.best[row]
        return Example(
            dataset=DATASET,
            input=shown(asked.question),
            truth="; ".join(dict.fromkeys(text for text, _ in asked.answers)),
            answer=window.text,
            score=round(window.confidence(temperature), 4),
        )


def evaluate_answerer(evaluation: Evaluation) -> Measured:
    """Measure exact match and F1 of the answers to SQuAD 1.1's development questions, as its own script does.

    Without `limit`, also measures the card.
    """
    if evaluation.limit is None:
        check_drawing()
    test = _answered(evaluation, readers.read_questions(evaluation.data, "test"))
    found = {"F1": test.overlap.mean(), "exact match": test.is_exact.mean()}
    figures = [evaluation.figure(DATASET, metric, float(value)) for metric, value in found.items()]
    if evaluation.limit is not None:
        return Measured(figures)
    judges = {DATASET: test.judged}
    calibration = evaluation.manifest.calibration
    if evaluation.manifest.training is not None:  # of another's training it is not known what it left out
        validation = _answered(evaluation, readers.read_questions(evaluation.data, "validation"))
        calibration = calibrate_scores(validation.judged, VALIDATION, judges)
    temperature = 1.0 if calibration is None else calibration.temperature
    unpicked, wrong = examples(
        len(test.rows), 1, np.flatnonzero(~test.is_exact), lambda row: test.example(row, temperature)
    )
    fields = {
        "calibration": calibration,
        "slices": slices(DATASET, "F1", test.parts(), lambda rows: float(test.overlap[rows].mean())),
        "examples": unpicked,
        "wrong_answers": wrong,
    }
    return Measured(figures, fields, {RELIABILITY_FILE: reliability(judges, temperature)})


def _answered(evaluation: Evaluation, questions: Iterable[Question]) -> Answered:
    rows, longest = list(islice(questions, evaluation.limit)), evaluation.manifest.limits.max_input_tokens
    objective = Answer(plain_tokenizer(evaluation), longest, stride=longest // 4)
    objective.encode(rows)
    model = GraphModel(evaluation.graphs["encoder"])
    windows: list[list[Window]] = [[] for _ in rows]
    for indices in objective.batches(BATCH_TOKENS, None):
        batch = objective.collate(indices)
        logits = objective.logits(model, batch)
        for index, each in zip(indices, logits, strict=True):
            row, _ = objective.windows[index]
            windows[row].append(_window(objective, index, each))
    best = [max(some, key=lambda window: (window.score, window.text)) for some in windows]
    marks = [row.marks(window.text) for row, window in zip(rows, best, strict=True)]
    overlap, is_exact = zip(*marks, strict=True)
    return Answered(rows, best, np.array(overlap, np.float64), np.array(is_exact))


def _window(objective: Answer, index: int, logits: torch.Tensor) -> Window:
    row, window = objective.windows[index]
    first, last, score = best_span(window, logits)
    asked = [0, *(place for place, text in enumerate(window.sequence_ids) if text == 1)]  # CLS, and the context's
    places = {token: place for place, token in enumerate(asked)}
    text = objective.rows[row].context[window.offsets[first][0] : window.offsets[last][1]]
    return Window(logits[asked].numpy(), (places[first], places[last]), text, score)
