"""Translation."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from service.schemas.decoding import DecodingRequest
from service.schemas.request import Response, Text, Texts, Usage

MAX_LANGUAGE = 32


class TranslateRequest(DecodingRequest):
    """Texts to translate (LibreTranslate's form, and more)."""

    inputs: ClassVar = "q"

    q: Text | Texts = Field(description="a text, or a list of texts", examples=["Dan loves ice cream."])
    source: str = Field(
        "auto",
        max_length=MAX_LANGUAGE,
        description="language of the text, checked against the model's; auto checks nothing, and is not enough for a "
        "model that has to be told",
    )
    target: str = Field(max_length=MAX_LANGUAGE, description="language to translate into", examples=["sv"])
    beam_size: int | None = Field(
        None, ge=1, description="1 is greedy; the package's or 4 if left out, 1 when streaming"
    )
    n_best: int = Field(1, ge=1, description="more than 1 adds alternatives; at most beam_size")
    max_tokens: int | None = Field(
        None, ge=1, description="most tokens of each sentence; twice the source's and ten if left out"
    )
    stream: bool = Field(False, description="answer with server-sent events; for a single text")


class TranslateResponse(Response):
    """A translation for each text; plain strings where a plain string was sent."""

    translatedText: str | list[str]  # noqa: N815  # LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    model: str
    usage: Usage


class TranslateEvent(Response):
    """A piece of the translation."""

    text: str


class Language(Response):
    """A language that a model translates from or into."""

    code: str
    targets: list[str] | None = Field(None, description="the languages it is translated into; left out: all others")


class LanguageList(Response):
    """The languages of a translator."""

    model: str
    languages: list[Language]
