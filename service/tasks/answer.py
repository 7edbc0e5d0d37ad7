"""Answers to questions, found in texts of any length."""

from __future__ import annotations

from service.engine.admission import Permit
from service.errors import EmptyInput, InvalidRequest
from service.schemas import AnswerRequest, AnswerResponse, Answers, Span, Usage
from service.tasks.encoder import Encoder, Reading, Windows
from service.tasks.pool import CHARACTERS_PER_READ_TOKEN
from service.tasks.scores import calibrated
from service.tasks.spans import Spans, answers, best_spans
from service.tasks.texts import as_list, check_characters, check_copies

SPANS_PER_CHARACTER = 16  # that are compared while one character is encoded, for the pool
CANDIDATES = 8  # times the answers that are asked for: of each window, as several may be parts of the same words


class Answer:
    """An encoder that points at the first and the last token of an answer."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest

    async def predict(self, request: AnswerRequest, client: str) -> AnswerResponse:
        """Return the answers to each question."""
        pairs = _pairs(request)
        for question, _ in pairs:
            check_characters(question, self._encoder.limit, "question")
        check_copies(sum(len(context) for _, context in pairs), "context")  # each is encoded anew beside its question
        reading = Reading(windows=True, overlap=request.overlap, cut_part=1, param="context", repeated_param="question")
        with self._encoder.admit(client, pairs, reading) as permit:
            windows, tokens = await self._encoder.read_windows(permit, pairs, reading)
            results: list[Answers] = []
            characters = 0
            for (_, context), found in zip(pairs, windows, strict=True):
                results.append(await self._answers(permit, context, found, request))
                characters += sum(len(span.text) for span in results[-1].answers)
                check_copies(characters, "top_k")
        return AnswerResponse(model=self._manifest.name, results=results, usage=Usage(prompt_tokens=tokens))

    async def _answers(self, permit: Permit, context: str, windows: Windows, request: AnswerRequest) -> Answers:
        """Return the best answers of all windows; there is none as surely as the window that doubts it most says so.

        Each window is a piece of work by itself, as a context may have hundreds.
        """
        pool, text = self._encoder.pool, windows.text
        found: list[Spans] = []
        no_answer = 1.0
        count, most = CANDIDATES * request.top_k, request.max_answer_tokens
        for row, window in zip(windows.rows, windows.ranges, strict=True):
            size = len(window) * max(CHARACTERS_PER_READ_TOKEN, min(most, len(window)) // SPANS_PER_CHARACTER)
            logits = calibrated(row, self._manifest, "softmax")
            spans, none = await pool.run(permit, size, best_spans, logits, text, window, count, most)
            found.append(spans)
            no_answer = min(no_answer, none)
        size = len(text.ids) * CHARACTERS_PER_READ_TOKEN
        best = await pool.run(permit, size, answers, context, text, found, request.top_k)
        if request.no_answer:
            best = sorted([*best, Span("", no_answer, 0, 0)], key=lambda span: -span.score)[: request.top_k]
        return Answers(answers=best, no_answer_score=no_answer)


def _pairs(request: AnswerRequest) -> list[tuple[str, str]]:
    """Return each question with its context."""
    questions, contexts = as_list(request.question), as_list(request.context)
    for param, texts in (("question", questions), ("context", contexts)):
        if not texts:
            raise EmptyInput(f"{param} is empty; send at least one", param)
    count = max(len(questions), len(contexts))
    questions, contexts = (texts * count if len(texts) == 1 else texts for texts in (questions, contexts))
    if len(questions) != len(contexts):
        raise InvalidRequest(
            f"question has {len(questions)} texts and context {len(contexts)}; send as many, or one of either",
            "question",
        )
    return list(zip(questions, contexts, strict=True))
