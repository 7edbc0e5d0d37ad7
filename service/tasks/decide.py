"""Questions answered by encoders: by entailment, by the model's own labels, or by relevance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.decisions import fits, place_of, way_of
from service.engine.arrays import Array
from service.errors import InvalidRequest
from service.schemas import DecideRequest, DecideResponse, Question, Usage
from service.tasks.encoder import Encoder, Reading, Texts
from service.tasks.scores import activate, label_scores, softmax
from service.tasks.texts import check_copies, read_of


class Decide:
    """An encoder's answers to questions about a text."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest
        self._way = way_of(self._manifest)

    async def predict(self, request: DecideRequest, client: str) -> DecideResponse:
        """Return the probabilities of each question's options."""
        asked = [question if fits(self._manifest, question) else None for question in request.questions]
        answerable = [question for question in asked if question is not None]
        if not answerable:
            own = ", ".join(self._manifest.labels)
            raise InvalidRequest(
                f"model {self._manifest.name!r} answers with labels of its own: {own}; ask for these, or another model",
                "questions",
            )
        if self._way != "labels":
            options = sum(len(question.options) for question in answerable)
            self._encoder.check_rows(options, "questions")
            read = options * read_of(request.input, self._encoder.limit)
            check_copies(read + sum(map(_count_characters, answerable)), "questions")
        rows = self._read_texts(request, answerable)
        reading = Reading(truncate=request.truncate, cut_part=int(self._way == "relevance"), repeated_param="questions")
        with self._encoder.admit(client, rows, reading) as permit:
            logits, tokens = await self._encoder.read(permit, rows, reading)
        by_way = {"entailment": self._by_entailment, "relevance": self._by_relevance}
        found = iter(by_way.get(self._way or "", self._by_labels)(answerable, logits))
        return DecideResponse(
            model=self._manifest.name,
            results=[None if question is None else next(found).tolist() for question in asked],
            usage=Usage(prompt_tokens=tokens),
        )

    def _by_entailment(self, questions: Sequence[Question], logits: Array) -> list[Array]:
        entailment = self._manifest.entailment
        assert entailment is not None, "bug: it is answered by entailment"
        of_truth = logits[:, [entailment.contradicts, entailment.entails]]
        return [
            softmax(of_truth[rows])[:, 1] if len(question.options) == 1 else softmax(logits[rows, entailment.entails])
            for question, rows in _rows(questions)
        ]

    def _by_relevance(self, questions: Sequence[Question], logits: Array) -> list[Array]:
        return [
            activate(logits[rows, 0], "sigmoid") if len(question.options) == 1 else softmax(logits[rows, 0])
            for question, rows in _rows(questions)
        ]

    def _by_labels(self, questions: Sequence[Question], logits: Array) -> list[Array]:
        """Return the labels' own scores; those of several options are made 1 in sum."""
        manifest = self._manifest
        scores = label_scores(logits[0], manifest, "sigmoid" if manifest.activation == "sigmoid" else "softmax")
        answers = []
        for question in questions:
            of_options = scores[[place_of(option, manifest.labels) or 0 for option in question.options]]
            if len(question.options) > 1:
                # Of labels that stand alone all may be 0, where a model is sure of none.
                total = of_options.sum()
                of_options = of_options / total if total > 0 else np.full_like(of_options, 1 / len(of_options))
            answers.append(of_options)
        return answers

    def _read_texts(self, request: DecideRequest, questions: Sequence[Question]) -> list[Texts]:
        """Return what is to be read: the text beside each answer, or alone for a model that has labels."""
        match self._way:
            case "entailment":
                return [(request.input, each) for each in hypotheses(questions)]
            case "relevance":
                return [(each, request.input) for each in hypotheses(questions)]
            case _:
                return [(request.input,)]


def hypotheses(questions: Sequence[Question]) -> list[str]:
    """Return each option of each question in words, behind the question."""
    return [f"{question.instructions} {option.text}".strip() for question in questions for option in question.options]


def _count_characters(question: Question) -> int:
    """Return how many characters its options have behind the question, but for spaces."""
    return len(question.options) * len(question.instructions) + sum(len(option.text) for option in question.options)


def _rows(questions: Sequence[Question]) -> list[tuple[Question, slice]]:
    """Return which rows are a question's options."""
    ends = np.cumsum([len(question.options) for question in questions]).tolist()
    return [(question, slice(end - len(question.options), end)) for question, end in zip(questions, ends, strict=True)]
