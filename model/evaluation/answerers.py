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
from model.training.errors import DataError
from model.training.objectives import Answer
from model.training.objectives.answer import Question, best_span

DATASET, VALIDATION = "squad11/dev", "squad11/train, its last articles, which are not trained on"
ASKED = ("what", "who", "when", "where", "which", "why", "how")


@dataclass(frozen=True)
class Window:
    """A window's logits (T, 2) of first and last tokens, and its best answer, by whole words and by tokens alone.

    Of the tokens only those count that serving asks: CLS, which stands for "no answer here", and the context's.
    """

    logits: NDArray[np.float32]
    best: tuple[int, int]
    text: str  # as serving returns it
    tokens: str
    margin: float  # of the best answer over "no answer here", by which SQuAD's own figures compare windows

    def confidence(self, temperature: float) -> float:
        """Return how likely the best answer is, as serving says it."""
        starts, ends = probabilities(self.logits.T, temperature)
        return float(starts[self.best[0]] * ends[self.best[1]])


@dataclass(frozen=True)
class Answered:
    """Questions, and what an answerer says of the windows of each."""

    rows: Sequence[Question]
    windows: Sequence[Sequence[Window]]  # of each question

    def served(self, row: int, temperature: float) -> tuple[Window, float]:
        """Return the window whose answer serving returns, the likeliest one, and its score."""
        scored = [(window.confidence(temperature), window) for window in self.windows[row]]
        score, window = max(scored, key=lambda each: each[0])
        return window, score

    def judged(self, temperature: float) -> tuple[Array, Mask]:
        """Return the scores of answers as they are served, and whether they match exactly, (N,)."""
        served = [self.served(row, temperature) for row in range(len(self.rows))]
        right = [row.marks(window.text)[1] for row, (window, _) in zip(self.rows, served, strict=True)]
        return np.array([score for _, score in served]), np.array(right)

    def marks(self) -> tuple[Array, Mask]:
        """Return the F1 of the answers' words and whether they match exactly, (N,), as SQuAD's figures have them."""
        best = [max(some, key=lambda window: (window.margin, window.tokens)) for some in self.windows]
        marks = [row.marks(window.tokens) for row, window in zip(self.rows, best, strict=True)]
        return np.array([overlap for overlap, _ in marks]), np.array([is_exact for _, is_exact in marks])

    def parts(self) -> dict[str, Mask]:
        """Return the questions by the word that asks, and by the lengths of their contexts."""
        words = [row.question.lower().split() for row in self.rows]
        asks = np.array([next((word for word in some if word in ASKED), "other") for some in words])
        contexts = np.array([len(row.context.split()) for row in self.rows])
        asked = {f"asks {word}": asks == word for word in (*ASKED, "other")}
        return asked | by_length(contexts, "words of context")

    def example(self, row: int, temperature: float) -> Example:
        """Return a question with its answer, and those that people gave."""
        asked, (window, score) = self.rows[row], self.served(row, temperature)
        return Example(
            dataset=DATASET,
            input=shown(asked.question),
            truth="; ".join(dict.fromkeys(text for text, _ in asked.answers)),
            answer=window.text,
            score=round(score, 4),
        )


def evaluate_answerer(evaluation: Evaluation) -> Measured:
    """Measure exact match and F1 of the answers to SQuAD 1.1's development questions, as its own script does.

    Without `limit`, also measures the card.
    """
    if evaluation.limit is None:
        check_drawing()
    # Of another's training it is not known what it left out. Files that are missing are told before minutes are over.
    is_fitted = evaluation.limit is None and evaluation.manifest.training is not None
    kept = readers.read_questions(evaluation.data, "validation") if is_fitted else []
    test = _answered(evaluation, readers.read_questions(evaluation.data, "test"))
    overlap, is_exact = test.marks()
    found = {"F1": overlap.mean(), "exact match": is_exact.mean()}
    figures = [evaluation.figure(DATASET, metric, float(value)) for metric, value in found.items()]
    if evaluation.limit is not None:
        return Measured(figures)
    judges = {DATASET: test.judged}
    calibration = evaluation.manifest.calibration
    if is_fitted:
        calibration = calibrate_scores(_answered(evaluation, kept).judged, VALIDATION, judges)
    temperature = 1.0 if calibration is None else calibration.temperature
    mistaken = np.flatnonzero(~test.judged(temperature)[1])
    unpicked, wrong = examples(len(test.rows), 1, mistaken, lambda row: test.example(row, temperature))
    fields = {
        "calibration": calibration,
        "slices": slices(DATASET, "F1", test.parts(), lambda rows: float(overlap[rows].mean())),
        "examples": unpicked,
        "wrong_answers": wrong,
    }
    return Measured(figures, fields, {RELIABILITY_FILE: reliability(judges, temperature)})


def _answered(evaluation: Evaluation, questions: Iterable[Question]) -> Answered:
    rows, longest = list(islice(questions, evaluation.limit)), evaluation.manifest.limits.max_input_tokens
    if not rows:
        raise DataError(f"{evaluation.data}: the questions to measure with have no row")
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
    return Answered(rows, windows)


def _window(objective: Answer, index: int, logits: torch.Tensor) -> Window:
    row, window = objective.windows[index]
    first, last, margin = best_span(window, logits)
    asked = [0, *(place for place, text in enumerate(window.sequence_ids) if text == 1)]  # CLS, and the context's
    places = {token: place for place, token in enumerate(asked)}
    context, words = objective.rows[row].context, window.word_ids
    begins, ends = first, last  # widened to whole words
    while begins - 1 in places and words[begins - 1] == words[first]:
        begins -= 1
    while ends + 1 in places and words[ends + 1] == words[last]:
        ends += 1
    text, tokens = (
        context[window.offsets[start][0] : window.offsets[end][1]] for start, end in ((begins, ends), (first, last))
    )
    return Window(logits[asked].numpy(), (places[first], places[last]), text, tokens, margin)
