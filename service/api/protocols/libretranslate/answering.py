"""Requests of LibreTranslate as native ones, and the answers back."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Mapping

from model.package import Languages
from service.api.calls import Calls
from service.api.invalid import naming, native
from service.api.observing import observed
from service.api.protocols.libretranslate.schemas import (
    DetectedLanguage,
    DetectRequest,
    LibreTranslateLanguage,
    LibreTranslateRequest,
    LibreTranslateResponse,
)
from service.languages import Detector, english_name
from service.schemas import Detected, TranslateRequest, TranslateResponse

UNKNOWN = DetectedLanguage(confidence=0, language="auto")
OLDER_CODES = {"pb": "pt-BR", "zt": "zh-Hant"}  # of LibreTranslate before 1.6, for what no other code meant there
LEAST = 1.0  # per cent: a language that is less likely is not told


async def translate(calls: Calls, request: LibreTranslateRequest) -> LibreTranslateResponse:
    """Return the translation of each text."""
    with naming(input="q", n_best="alternatives + 1", beam_size="alternatives"):
        asked = native(
            TranslateRequest,
            model=request.model,
            input=request.q,
            source=OLDER_CODES.get(request.source, request.source),
            target=OLDER_CODES.get(request.target, request.target),
            format=request.format,
            n_best=1 + request.alternatives,
        )
        answer = await calls.answer_as(TranslateResponse, asked, "translate")
    codes = _codes(calls)
    detected = None if answer.detected is None else [_detected(each, codes) for each in answer.detected]
    alternatives = answer.alternatives and [
        list(dict.fromkeys([best, *others]))[1:]  # as there, no text twice
        for best, others in zip(answer.translations, answer.alternatives, strict=True)
    ]
    if isinstance(request.q, str):
        return LibreTranslateResponse(
            translatedText=answer.translations[0],
            detectedLanguage=detected and detected[0],
            alternatives=alternatives and alternatives[0],
        )
    return LibreTranslateResponse(
        translatedText=answer.translations, detectedLanguage=detected, alternatives=alternatives
    )


def _codes(calls: Calls) -> Mapping[str, str]:
    """Return models' names of languages → the codes that clients of LibreTranslate know them by."""
    return ChainMap(*(known.codes for known in known_languages(calls)))


def _detected(found: Detected | None, codes: Mapping[str, str]) -> DetectedLanguage:
    if found is None or not found.score:
        return UNKNOWN
    return DetectedLanguage(confidence=_percent(found.score), language=codes.get(found.language, found.language))


def _percent(score: float) -> float:
    return round(100 * score, 1)


async def detect(calls: Calls, request: DetectRequest) -> list[DetectedLanguage]:
    """Return the languages that a text may be in, of those that are translated here, the likeliest first."""
    calls.find(None, "translate")
    observed().task = "detect"
    names = dict.fromkeys(name for known in known_languages(calls) for name in known.names)
    guesses = await asyncio.to_thread(lambda: Detector(names).guesses(request.q))
    codes = _codes(calls)
    found = [_detected(Detected(language=guess.language, score=guess.score), codes) for guess in guesses]
    return [each for place, each in enumerate(found) if place == 0 or each.confidence >= LEAST]


def languages(calls: Calls, model: str | None) -> list[LibreTranslateLanguage]:
    """Return the languages of the translator that is named, or of all."""
    calls.tasks.find(model, "translate")
    model = calls.tasks.name_in(model)
    targets: dict[str, dict[str, None]] = {}
    for known in known_languages(calls, model):
        for source in known.sources:
            into = known.targets_of(source) or [name for name in known.targets if name != source]
            targets.setdefault(known.codes[source], {}).update(dict.fromkeys(known.codes[name] for name in into))
    return [
        LibreTranslateLanguage(code=code, name=english_name(code), targets=list(into)) for code, into in targets.items()
    ]


def known_languages(calls: Calls, model: str | None = None) -> list[Languages]:
    """Return the languages of each translator, or of the one that is named."""
    tasks = [task for task in calls.tasks if model in {None, task.manifest.name}]
    return [task.manifest.languages for task in tasks if task.manifest.languages is not None]
