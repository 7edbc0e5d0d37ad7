"""LibreTranslate's routes; `/translate` is one route with the native one.

A body of `/translate` is LibreTranslate's if it has `q` and not `input`. Then answer and errors are LibreTranslate's.
All of them take forms and query strings, too (`service.api.forms`).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import Discriminator, Tag

from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.error_forms import LIBRETRANSLATE
from service.api.protocols.libretranslate import answering
from service.api.protocols.libretranslate.schemas import (
    DetectedLanguage,
    DetectRequest,
    FrontendSettings,
    LanguageChoice,
    LibreTranslateLanguage,
    LibreTranslateRequest,
    LibreTranslateResponse,
    NamedLanguage,
)
from service.api.shared_bodies import OURS, THEIRS, whose
from service.api.streaming import event_stream
from service.errors import Forbidden, NoModel
from service.languages import english_name
from service.schemas import TranslateRequest, TranslateResponse
from service.schemas.translate import AUTO

TranslateBody = Annotated[
    Annotated[TranslateRequest, Tag(OURS)] | Annotated[LibreTranslateRequest, Tag(THEIRS)],
    Discriminator(whose("input", "q", LIBRETRANSLATE)),
]
DAN = "Dan loves ice cream."
TRANSLATE_EXAMPLES: dict[str, Any] = {
    "native": {"summary": "a text", "value": {"input": DAN, "target": "sv"}},
    "libretranslate": {"summary": "in LibreTranslate's form", "value": {"q": DAN, "source": "en", "target": "sv"}},
    "html": {
        "summary": "a page, whose tags stay",
        "value": {"q": f'<p class="green">{DAN}</p>', "source": "auto", "target": "sv", "format": "html"},
    },
}


def add_libretranslate_routes(router: APIRouter, calls: Calls, *, needs_keys: bool) -> None:
    """Add the routes."""

    @router.post(
        "/translate", response_model=TranslateResponse | LibreTranslateResponse, response_model_exclude_none=True
    )
    async def translate(request: Annotated[TranslateBody, Body(openapi_examples=TRANSLATE_EXAMPLES)]) -> Any:
        """Translate texts of any number of sentences."""
        if isinstance(request, LibreTranslateRequest):
            return await json_answer(await answering.translate(calls, request))
        if request.stream:
            return await event_stream(calls.events(request, "translate"), calls.limits.keep_alive_s)
        return await json_answer(await calls.answer(request, "translate"))

    @router.post("/detect")
    async def detect(request: DetectRequest) -> list[DetectedLanguage]:
        """Tell the language of a text, of those that are translated here (LibreTranslate)."""
        return await answering.detect(calls, request)

    @router.get("/languages")
    async def languages(model: str | None = None) -> list[LibreTranslateLanguage]:
        """List the languages of the translator that is named, or of all (LibreTranslate)."""
        return answering.languages(calls, model)

    @router.get("/frontend/settings")
    async def frontend_settings() -> FrontendSettings:
        """Tell a page for translations what it has to know (LibreTranslate)."""
        known = answering.known_languages(calls)
        if not known:
            raise NoModel("there is no model for translate here", "model")
        target = known[0].targets[0]
        choice = LanguageChoice(
            source=NamedLanguage(code=AUTO, name="Auto Detect"),
            target=NamedLanguage(code=target, name=english_name(target)),
        )
        return FrontendSettings(apiKeys=needs_keys, keyRequired=needs_keys, language=choice)

    @router.post("/suggest", include_in_schema=False)
    async def suggest() -> None:
        """Refuse, as LibreTranslate does where suggestions are off: nothing here learns from them."""
        raise Forbidden("suggestions are not taken here")

    @router.post("/translate_file", include_in_schema=False)
    async def translate_file() -> None:
        """Refuse, as LibreTranslate does where files are off."""
        raise Forbidden("files are not translated here; send their text to /translate")
