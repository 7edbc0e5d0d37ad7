"""Requests to translate that name no model: the languages choose it, the target's and those of the texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from service.api.observing import observed
from service.languages import READ, SURE, Detector, Guess
from service.schemas import Detected, FinishReason, TranslateRequest, TranslateResponse, Usage
from service.schemas.translate import AUTO
from service.tasks.markup import SCANNED, text_of
from service.tasks.pool import SMALL, AdmittingPool
from service.tasks.task import Task, engine_errors
from service.tasks.texts import as_list

MAX_WAITING = 4096  # milliseconds of reading that may wait, as they are reckoned
READ_OF_PAGE = 2_000  # characters of a page of nothing but tags that are read in a millisecond
PIECE = 50  # milliseconds after which it is another request's turn; more for a single page

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
        self._pool = AdmittingPool("languages", MAX_WAITING)

    async def choose(self, request: TranslateRequest, translators: Sequence[Task]) -> list[TranslatorChoice]:
        """Return for each text which of several translators into its target knows its language.

        Raises `ServerOverloaded` where too many texts wait to be read.
        """
        texts, is_html = as_list(request.input), request.format == "html"
        costs = [cost_of(text, is_html) for text in texts]
        choices: list[TranslatorChoice] = []
        with engine_errors(), self._pool.admit(observed().client, sum(costs)) as permit:
            for start, end in _pieces(costs):
                some = texts[start:end]
                choices += await self._pool.run(permit, SMALL + 1, _choose, some, is_html, request.target, translators)
        return choices


def cost_of(text: str, is_html: bool) -> int:
    """Return how many milliseconds it takes at most to tell a text's language."""
    return 1 + (min(len(text), SCANNED) // READ_OF_PAGE if is_html else 0)


def _pieces(costs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the places of texts, from and to, that are read before others have their turn."""
    start = cost = 0
    for place, more in enumerate(costs):
        if place > start and cost + more > PIECE:
            yield start, place
            start, cost = place, 0
        cost += more
    yield start, len(costs)


def _choose(texts: Sequence[str], is_html: bool, target: str, translators: Sequence[Task]) -> list[TranslatorChoice]:
    manifests = [task.manifest for task in translators]
    detector = Detector(name for each in manifests if each.languages for name in each.languages.names)
    read = [text_of(text, READ) if is_html else text[:READ] for text in texts]
    return [_choice(*detector.read(text), target, translators) for text in read]


def _choice(guesses: Sequence[Guess], surely: str | None, target: str, translators: Sequence[Task]) -> TranslatorChoice:
    if surely is not None and not any(_translates(task, surely, target) for task in translators):
        return TranslatorChoice(translators[0], AUTO, None)  # which refuses it, or finds that it is the target's own
    is_in_target = guesses and guesses[0].score >= SURE and _is_target(translators[0], guesses[0].language, target)
    for guess in guesses if not is_in_target else ():
        for task in translators:
            if _translates(task, guess.language, target):
                return TranslatorChoice(task, guess.language, guess)
    return TranslatorChoice(translators[0], AUTO, None)  # which finds that it is in the target's language already


def _translates(task: Task, source: str, target: str) -> bool:
    languages = task.manifest.languages
    return languages is not None and languages.can_translate(source, target)


def _is_target(task: Task, language: str, target: str) -> bool:
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
        observed().count_part(answers)
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
