"""Questions answered by a decoder: how likely it is to write each answer."""

from __future__ import annotations

from itertools import chain

import numpy as np

from service.errors import InvalidRequest, TooLarge
from service.schemas import DecideRequest, DecideResponse, GenerateRequest, Question, Usage
from service.tasks.generate import Generate
from service.tasks.scores import softmax
from service.tasks.texts import check_copies

TRUTH = ("True", "False")
SHOWN = 40  # characters of a text that is refused


class DecideByLikelihood:
    """A decoder's answers to questions about a text; none of it is generated but scored."""

    def __init__(self, name: str, generate: Generate, most: int) -> None:
        self._name, self._generate, self._most = name, generate, most

    async def predict(self, request: DecideRequest, client: str) -> DecideResponse:
        """Return the probabilities of each question's options."""
        if request.truncate:
            raise InvalidRequest("truncate is for models that read questions beside the text; send less", "truncate")
        rows = sum(_count_texts(question) for question in request.questions)
        if rows > self._most:
            raise TooLarge(
                f"questions come to {rows} texts to read; the limit is {self._most} for one request", "questions"
            )
        check_copies(sum(_count_characters(request.input, question) for question in request.questions), "questions")
        texts = [_texts(request.input, question) for question in request.questions]
        scored = GenerateRequest(
            prompt=list(chain.from_iterable(texts)), echo=True, logprobs=0, max_tokens=0, temperature=0
        )
        prompts, pieces = await self._generate.run(scored, client)
        # The first piece of each choice is its prompt.
        scores = iter([[token.logprob or 0.0 for token in first.tokens or []] for first, *_ in pieces])
        ids = iter([prompt.ids for prompt in prompts])
        results: list[list[float] | None] = []
        for question, of_question in zip(request.questions, texts, strict=True):
            context, _ = next(ids), next(scores)
            likelihoods = [_own(context, next(ids), next(scores), text) for text in of_question[1:]]
            results.append(softmax(np.array(likelihoods)).tolist()[: len(question.options)])
        return DecideResponse(
            model=self._name, results=results, usage=Usage(prompt_tokens=sum(prompt.tokens for prompt in prompts))
        )


def _texts(text: str, question: Question) -> list[str]:
    """Return what is to be continued, and then that with each answer; a statement is true or false."""
    options = [option.text for option in question.options]
    if len(options) == 1:
        context, options = f"{text}\n\nTrue or false: {question.instructions}{options[0]}\nAnswer:", list(TRUTH)
    else:
        context = f"{text}\n\n{question.instructions}\nAnswer:"
    return [context, *(f"{context} {option}" for option in options)]


def _count_texts(question: Question) -> int:
    """Return how many texts a question comes to."""
    return 1 + (len(TRUTH) if len(question.options) == 1 else len(question.options))


def _count_characters(text: str, question: Question) -> int:
    """Return how many characters they have, but for a few."""
    options = [len(option.text) for option in question.options]
    shared = len(text) + len(question.instructions) + (options[0] if len(options) == 1 else 0)
    return _count_texts(question) * shared + sum(options)


def _own(context: list[int], ids: list[int], scores: list[float], text: str) -> float:
    """Return the log probability of the tokens that a text has beyond its context; the last of `scores` are theirs.

    Raises `InvalidRequest` where it has none, which would be the likeliest of all.
    """
    shared = next((place for place, (one, other) in enumerate(zip(context, ids, strict=False)) if one != other), None)
    beyond = len(ids) - (min(len(context), len(ids)) if shared is None else shared)
    if not beyond:
        raise InvalidRequest(f"questions: {text[-SHOWN:]!r} ends with an option that has no tokens here", "questions")
    return sum(scores[len(scores) - beyond :])
