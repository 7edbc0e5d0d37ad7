"""`/v1/decisions`: questions about a text, answered with probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

from model.package import Manifest
from service.api.calls import Calls
from service.api.invalid import naming
from service.api.protocols.openai.answers import DetailedUsage
from service.api.protocols.openai.decision_bodies import (
    ChoiceAnswer,
    ChoiceProbability,
    ChoiceQuestion,
    Decisions,
    DecisionsRequest,
    LevelProbability,
    PredicateAnswer,
    PredicateQuestion,
    Question,
    RefusalAnswer,
    ScoreAnswer,
    ScoreQuestion,
)
from service.decisions import fits
from service.schemas import DecideRequest, DecideResponse

GOOD_OR_BAD = {
    "type": "choice",
    "name": "opinion",
    "instructions": "What does the writer think of the film?",
    "choices": [{"value": "positive"}, {"value": "negative"}],
}
EXAMPLES = {
    "choice": {
        "summary": "a choice among a classifier's labels",
        "value": {"input": "A warm, funny film with a wonderful cast.", "questions": [GOOD_OR_BAD]},
    },
    "three": {
        "summary": "a statement, a choice and a score",
        "value": {
            "input": [{"role": "user", "content": "I was charged twice for my order."}],
            "questions": [
                {"type": "predicate", "name": "money", "instructions": "The customer writes about money."},
                {
                    "type": "choice",
                    "name": "department",
                    "instructions": "The department that helps is",
                    "choices": [{"value": "billing", "description": "billing and refunds"}, {"value": "technical"}],
                },
                {
                    "type": "score",
                    "name": "anger",
                    "instructions": "The customer is",
                    "levels": [{"label": "calm"}, {"label": "annoyed"}, {"label": "furious"}],
                },
            ],
        },
    },
}


async def decisions(request: DecisionsRequest, calls: Calls) -> Decisions:
    """Answer a request by the named model, or by the first that can answer every question."""
    questions = [question.native() for question in request.questions]

    def suits(manifest: Manifest) -> bool:
        return all(fits(manifest, question) for question in questions)

    native = DecideRequest.model_construct(
        model=calls.find(request.model, "decide", suits).manifest.name,
        input=request.text(),
        questions=questions,
        truncate=request.truncate,
    )
    with naming(logprobs="questions"):  # which a decoder is asked for
        answer = await calls.answer_as(DecideResponse, native, "decide")
    tokens = answer.usage.prompt_tokens
    pairs = zip(request.questions, answer.results, strict=True)
    return Decisions(
        model=answer.model,
        answers=[_answer(question, probabilities) for question, probabilities in pairs],
        usage=DetailedUsage(input_tokens=tokens, output_tokens=0, total_tokens=tokens),
    )


def _answer(
    question: Question, probabilities: list[float] | None
) -> PredicateAnswer | ChoiceAnswer | ScoreAnswer | RefusalAnswer:
    if probabilities is None:
        return RefusalAnswer(name=question.name)
    match question:
        case PredicateQuestion():
            return PredicateAnswer(name=question.name, probability=probabilities[0])
        case ChoiceQuestion():
            return _chosen(question, probabilities)
        case ScoreQuestion():
            return _scored(question, probabilities)


def _chosen(question: ChoiceQuestion, probabilities: list[float]) -> ChoiceAnswer:
    values = [choice.value for choice in question.choices]
    return ChoiceAnswer(
        name=question.name,
        choice=values[probabilities.index(max(probabilities))],
        confidence=confidence(probabilities),
        probabilities=[
            ChoiceProbability(value=value, probability=probability)
            for value, probability in zip(values, probabilities, strict=True)
        ],
    )


def _scored(question: ScoreQuestion, probabilities: list[float]) -> ScoreAnswer:
    return ScoreAnswer(
        name=question.name,
        score=sum(value * probability for value, probability in enumerate(probabilities)),
        confidence=confidence(probabilities),
        probabilities=[
            LevelProbability(value=value, label=level.label, probability=probability)
            for value, (level, probability) in enumerate(zip(question.levels, probabilities, strict=True))
        ],
    )


def confidence(probabilities: Sequence[float]) -> float:
    """Return how far from even probabilities are: 1 less their entropy as a part of the greatest."""
    entropy = -sum(each * math.log(each) for each in probabilities if each > 0)
    return min(1.0, max(0.0, 1 - entropy / math.log(len(probabilities))))
