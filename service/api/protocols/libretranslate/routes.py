"""LibreTranslate's routes but `/translate`, which is one route with the native one (`service.api.shared_routes`).

All of them take forms and query strings, too (`service.api.forms`).
"""

from __future__ import annotations

from fastapi import APIRouter

from service.api.calls import Calls
from service.api.protocols.libretranslate import answering
from service.api.protocols.libretranslate.schemas import (
    DetectedLanguage,
    DetectRequest,
    FrontendSettings,
    LanguageChoice,
    LibreTranslateLanguage,
    NamedLanguage,
)
from service.errors import Forbidden, NoModel
from service.languages import english_name
from service.schemas.translate import AUTO


def add_libretranslate_routes(router: APIRouter, calls: Calls, *, needs_keys: bool) -> None:
    """Add the routes."""

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
            target=NamedLanguage(code=known[0].codes[target], name=english_name(target)),
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
