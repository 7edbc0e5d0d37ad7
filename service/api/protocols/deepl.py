"""DeepL's routes (developers.deepl.com, version 2): texts, languages, usage; no documents and no glossaries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field

from model.package.languages import base_language, standard_tag
from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.invalid import naming, native
from service.api.protocols.nulls import NullsLeftOut
from service.errors import InvalidRequest, NoModel
from service.languages import english_name
from service.schemas import TranslateRequest, TranslateResponse
from service.schemas.request import Text, Texts
from service.schemas.translate import AUTO, MAX_LANGUAGE
from service.tasks.texts import as_list

NO_LIMIT = 10**12  # characters: DeepL's own word for accounts without one
# What would change the answer; each with the values that ask for nothing.
NOT_DONE: dict[str, tuple[Any, ...]] = {
    "glossary_id": (),
    "glossary_ids": (),
    "style_id": (),
    "custom_instructions": ([],),
    "translation_memory_id": (),
    "formality": ("default", "prefer_more", "prefer_less"),
    "split_sentences": ("1", 1, True),  # and "nonewlines" of pages, in which a line break is a space
    "tag_handling": ("html", ""),
    "ignore_tags": ("", []),
    "splitting_tags": ("", []),
    "non_splitting_tags": ("", []),
}
# What DeepL translates into, whose clients refuse the language alone as deprecated; models here know of one variety.
VARIETIES = {
    "EN": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "PT": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
DEEPL_EXAMPLES: dict[str, Any] = {
    "text": {"summary": "a text", "value": {"text": ["Dan loves ice cream."], "target_lang": "SV"}},
    "source": {
        "summary": "texts whose language is told",
        "value": {"text": ["Hallo!", "Niemand weiß es."], "source_lang": "DE", "target_lang": "EN-US"},
    },
}


class DeepLRequest(NullsLeftOut):
    """Texts to translate; unknown fields are ignored, as are those that only advise (`context`, `model_type`)."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    text: Text | Texts = Field(description="a text, or a list of texts")
    source_lang: str | None = Field(None, max_length=MAX_LANGUAGE, description="guessed from the letters if left out")
    target_lang: str = Field(max_length=MAX_LANGUAGE, description="as SV or EN-US")
    tag_handling: str | None = Field(None, description="html: only what is read is translated, tags stay as they are")
    show_billed_characters: bool = False
    model: str | None = Field(None, description="name of the model; if left out, the first for these languages")


class Translation(BaseModel):
    """A translation, and the language that it was translated from."""

    detected_source_language: str
    text: str
    billed_characters: int | None = None


class Translations(BaseModel):
    """A translation for each text."""

    translations: list[Translation]


class DeepLLanguage(BaseModel):
    """A language to translate from, or into."""

    language: str
    name: str
    supports_formality: bool | None = Field(None, description="of targets")


class Usage(BaseModel):
    """Characters that were translated, and those that may be: nobody counts them here."""

    character_count: int = 0
    character_limit: int = NO_LIMIT


def add_deepl_routes(router: APIRouter, calls: Calls) -> None:
    """Add the routes."""

    @router.post("/v2/translate", response_model=Translations, response_model_exclude_none=True)
    async def translate(request: Annotated[DeepLRequest, Body(openapi_examples=DEEPL_EXAMPLES)]) -> Any:
        """Translate texts (DeepL)."""
        return await json_answer(await _translate(calls, request))

    @router.get("/v2/languages", response_model_exclude_none=True)
    async def languages(type: Literal["source", "target"] = "source") -> list[DeepLLanguage]:  # noqa: A002  # theirs
        """List the languages of all translators (DeepL)."""
        return _languages(calls, type)

    @router.get("/v2/usage")
    async def usage() -> Usage:
        """Tell that no characters are counted (DeepL)."""
        return Usage()


async def _translate(calls: Calls, request: DeepLRequest) -> Translations:
    _refuse(request)
    texts = as_list(request.text)
    with naming(input="text", source="source_lang", target="target_lang"):
        asked = native(
            TranslateRequest,
            model=request.model,
            input=texts,
            source=request.source_lang or AUTO,
            target=request.target_lang,
            format="html" if request.tag_handling == "html" else "text",
        )
        answer = await calls.answer_as(TranslateResponse, asked, "translate")
    sources = [each.language if each else "" for each in answer.detected or []] or [request.source_lang or ""] * len(
        texts
    )
    return Translations(
        translations=[
            Translation(
                detected_source_language=base_language(source).upper(),
                text=translation,
                billed_characters=len(text) if request.show_billed_characters else None,
            )
            for text, translation, source in zip(texts, answer.translations, sources, strict=True)
        ]
    )


def _refuse(request: DeepLRequest) -> None:
    """Refuse by name what would change the answer and is not done here."""
    said = {**(request.model_extra or {}), "tag_handling": request.tag_handling}
    if request.tag_handling == "html" and said.get("split_sentences") == "nonewlines":
        del said["split_sentences"]
    for name, value in said.items():
        if name in NOT_DONE and value is not None and value not in NOT_DONE[name]:
            allowed = [other for other in NOT_DONE[name] if other and isinstance(other, str)]
            instead = f", or send {' or '.join(map(repr, allowed))}" if allowed else ""
            raise InvalidRequest(f"{name}: what it asks for is not done here; leave it out{instead}", name)


def _languages(calls: Calls, kind: str) -> list[DeepLLanguage]:
    known = [task.manifest.languages for task in calls.tasks if task.manifest.languages is not None]
    if not known:
        raise NoModel("there is no model for translate here", "model")
    is_target = kind == "target"
    names: dict[str, str] = {}  # by their tags: models spell them differently
    for each in known:
        for name in each.targets if is_target else each.sources:
            names.setdefault(standard_tag(name).upper(), name)
    listed: dict[str, str] = {}
    for tag, name in names.items():
        varieties = VARIETIES.get(tag, {}) if is_target else {}
        listed.update(varieties or {tag: english_name(name)})
    return [
        DeepLLanguage(language=tag, name=name, supports_formality=False if is_target else None)
        for tag, name in listed.items()
    ]
