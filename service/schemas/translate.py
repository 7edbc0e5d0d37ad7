"""Translation."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from service.schemas.request import Request, Response, Text, Texts, Usage


class TranslateRequest(Request):
    """Texts to translate (LibreTranslate's form, and more)."""

    inputs: ClassVar = "q"

    q: Text | Texts = Field(description="a text, or a list of texts", examples=["Dan loves ice cream."])
    source: str = Field("auto", description="language of the text, checked against the model's; auto checks nothing")
    target: str = Field(description="language to translate into", examples=["sv"])
    beam_size: int | None = Field(None, ge=1, description="1 is greedy; 4 if left out, 1 when streaming")
    length_penalty: float = Field(1.0, ge=-5, le=5, description="scores are divided by length to this power")
    n_best: int = Field(1, ge=1, description="more than 1 adds alternatives; at most beam_size")
    max_tokens: int | None = Field(
        None, ge=1, description="most tokens of each sentence; twice the source's if left out"
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
