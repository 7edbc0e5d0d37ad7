"""Requests to translate that name no model: the languages choose it, the target's and those of the texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from service.api.observing import observed
from service.languages import READ, SURE, Detector, Guess
from service.schemas import Detected, FinishReason, TranslateRequest, TranslateResponse, Usage
from service.schemas.translate import AUTO
from service.tasks.markup import text_of
from service.tasks.pool import AdmittingPool
from service.tasks.task import Task, engine_errors
from service.tasks.texts import as_list

MAX_TEXTS = 4096  # that may wait to be read: a second's worth

Ask = Callable[[Task, TranslateRequest], Awaitable[TranslateResponse]]


@dataclass(frozen=True)
class TranslatorChoice:
    """Which model translates a text, from which language, and what that was guessed by."""

    task: Task
    source: str
    guess: Guess | None


class Chooser:
    """Reads texts in a thread: 256 of them take 50 ms, and 2 s more when the process reads for the first time."""

    def __init__(self) -> None:
        self._pool = AdmittingPool("languages", MAX_TEXTS)

    async def choose(self, request: TranslateRequest, translators: Sequence[Task]) -> list[TranslatorChoice]:
        """Return for each text which of several translators into its target knows its language.

        Raises `ServerOverloaded` where too many texts wait to be read.
        """
        with engine_errors():
            texts = len(as_list(request.input))
            return await self._pool.admit(observed().client, texts, _choose, request, translators)


def _choose(request: TranslateRequest, translators: Sequence[Task]) -> list[TranslatorChoice]:
    manifests = [task.manifest for task in translators]
    detector = Detector(name for each in manifests if each.languages for name in each.languages.names)
    texts = [text_of(text, READ) if request.format == "html" else text[:READ] for text in as_list(request.input)]
    return [_choice(detector.guesses(text), request.target, translators) for text in texts]


def _choice(guesses: Sequence[Guess], target: str, translators: Sequence[Task]) -> TranslatorChoice:
    is_there = guesses and guesses[0].score >= SURE and _translates_into(translators[0], guesses[0].language, target)
    for guess in guesses if not is_there else ():
        for task in translators:
            languages = task.manifest.languages
            if languages is not None and languages.can_translate(guess.language, target):
                return TranslatorChoice(task, guess.language, guess)
    return TranslatorChoice(translators[0], AUTO, None)  # which finds that it is in the target's language already


def _translates_into(task: Task, language: str, target: str) -> bool:
    languages = task.manifest.languages
    return languages is not None and languages.known_as(language) == languages.known_as(target)


async def answer(request: TranslateRequest, choices: Sequence[TranslatorChoice], ask: Ask) -> TranslateResponse:
    """Ask each model for its texts, and return what they say as one answer, in the name of all of them."""
    texts = as_list(request.input)
    places: dict[tuple[str, str], list[int]] = {}
    for place, choice in enumerate(choices):
        places.setdefault((choice.task.manifest.name, choice.source), []).append(place)
    groups = list(places.values())
    answers: list[TranslateResponse] = []
    for group in groups:  # one after the other: who leaves, or is refused, leaves nothing running
        some = {"input": [texts[place] for place in group], "source": choices[group[0]].source}
        answers.append(await ask(choices[group[0]].task, request.model_copy(update=some)))
        observed().tokens = sum(said.usage.prompt_tokens + said.usage.completion_tokens for said in answers)
    order = {place: (said, row) for said, group in zip(answers, groups, strict=True) for row, place in enumerate(group)}
    rows = [order[place] for place in range(len(texts))]
    merged = TranslateResponse(
        model=", ".join(dict.fromkeys(said.model for said in answers)),
        translations=[said.translations[row] for said, row in rows],
        alternatives=[said.alternatives[row] for said, row in rows if said.alternatives] or None,
        detected=[_detected(choice, *row) for choice, row in zip(choices, rows, strict=True)],
        finish_reasons=_finish_reasons(rows),
        alignment=[said.alignment[row] for said, row in rows if said.alignment] or None,
        usage=Usage(
            prompt_tokens=sum(said.usage.prompt_tokens for said in answers),
            completion_tokens=sum(said.usage.completion_tokens for said in answers),
        ),
    )
    observed().count(merged)
    return merged


def _finish_reasons(rows: Sequence[tuple[TranslateResponse, int]]) -> list[FinishReason] | None:
    if not any(said.finish_reasons for said, _ in rows):
        return None
    return [said.finish_reasons[row] if said.finish_reasons else "stop" for said, row in rows]


def _detected(choice: TranslatorChoice, said: TranslateResponse, row: int) -> Detected | None:
    if choice.guess is not None:
        return Detected(language=choice.guess.language, score=round(choice.guess.score, 4))
    return said.detected[row] if said.detected else None
