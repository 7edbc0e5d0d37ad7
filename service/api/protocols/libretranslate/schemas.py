"""Bodies and answers of LibreTranslate 1.7 (docs.libretranslate.com)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from service.api.protocols.nulls import NullsLeftOut
from service.schemas.request import MAX_INT32, Text
from service.schemas.translate import AUTO, Source, Target, TextFormat, ToTranslate


class LibreTranslateBody(NullsLeftOut):
    """What LibreTranslate's bodies have in common; unknown fields are ignored, as there."""

    model_config = ConfigDict(extra="ignore")

    api_key: str | None = Field(None, description="the API key, where it does not come in a header")


class LibreTranslateRequest(LibreTranslateBody):
    """Texts to translate."""

    q: ToTranslate
    source: Source = AUTO
    target: Target
    format: TextFormat = "text"
    alternatives: int = Field(0, ge=0, le=MAX_INT32, description="how many other translations of each text to return")
    model: str | None = Field(None, description="name of the model; if left out, the first for these languages")


class DetectRequest(LibreTranslateBody):
    """A text whose language is asked for."""

    q: Text = Field(description="a text", examples=["Dan älskar glass."])


class DetectedLanguage(BaseModel):
    """A language that a text may be in."""

    confidence: float = Field(description="0 to 100")
    language: str


class LibreTranslateResponse(BaseModel):
    """Translations: a text where a text was sent, a list where a list was."""

    translatedText: str | list[str]  # noqa: N815  # LibreTranslate's names
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class LibreTranslateLanguage(BaseModel):
    """A language, and those that it is translated into."""

    code: str
    name: str
    targets: list[str]


class NamedLanguage(BaseModel):
    """A language by its code and its name."""

    code: str
    name: str


class LanguageChoice(BaseModel):
    """The languages that a page begins with."""

    source: NamedLanguage
    target: NamedLanguage


class FrontendSettings(BaseModel):
    """What a page for translations has to know."""

    charLimit: int = Field(-1, description="-1: there is none but the body's")  # noqa: N815  # LibreTranslate's names
    frontendTimeout: int = Field(500, description="milliseconds to wait for more letters before asking")  # noqa: N815
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool = False
    filesTranslation: bool = False  # noqa: N815
    supportedFilesFormat: list[str] = []  # noqa: N815
    language: LanguageChoice
