"""Translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from service.schemas.decoding import DecodingRequest, FinishReason
from service.schemas.request import MAX_INT32, Response, Text, Texts, Usage

MAX_LANGUAGE = 32
AUTO = "auto"
# What the bodies of LibreTranslate have in common with ours.
ToTranslate = Annotated[
    Text | Texts, Field(description="a text, or a list of texts", examples=["Dan loves ice cream."])
]
Source = Annotated[
    str,
    Field(max_length=MAX_LANGUAGE, description="language of the texts; auto: that of each is guessed from its letters"),
]
Target = Annotated[str, Field(max_length=MAX_LANGUAGE, description="language to translate into", examples=["sv"])]
TextFormat = Annotated[
    Literal["text", "html"], Field(description="html: only what is read is translated, tags stay as they are")
]


class TranslateRequest(DecodingRequest):
    """Texts to translate."""

    inputs: ClassVar = "input"

    input: ToTranslate
    source: Source = AUTO
    target: Target
    format: TextFormat = "text"
    beam_size: int | None = Field(
        None, ge=1, le=MAX_INT32, description="1 is greedy; the package's or 4 if left out, 1 when streaming"
    )
    n_best: int = Field(1, ge=1, le=MAX_INT32, description="more than 1 adds alternatives; at most beam_size")
    max_tokens: int | None = Field(
        None, ge=1, le=MAX_INT32, description="most tokens of each sentence; twice the source's and ten if left out"
    )
    stream: bool = Field(False, description="answer with server-sent events; for a single text")
    alignment: bool = Field(False, description="tell which words of each text and of its translation correspond")


@dataclass(frozen=True, slots=True)
class WordPair:
    """A word of a text and one of its translation that correspond, as characters [start, end)."""

    source: tuple[int, int]
    target: tuple[int, int]

    def moved(self, source: int, target: int) -> WordPair:
        """Return the pair in texts in which so many characters stand before."""
        (first, last), (begin, end) = self.source, self.target
        return WordPair((first + source, last + source), (begin + target, end + target))


class Detected(Response):
    """The language that a text was taken to be in."""

    language: str
    score: float = Field(description="how likely, of all languages that the model knows: 0 to 1")


class TranslateResponse(Response):
    """A translation for each text."""

    model: str
    translations: list[str]
    alternatives: list[list[str]] | None = Field(
        None,
        description="of each text the next best, where n_best asks for it; the last again where there are no others",
    )
    detected: list[Detected | None] | None = Field(
        None,
        description="of each text its language, where source is auto; null where none of ours can be told",
    )
    finish_reasons: list[FinishReason] | None = Field(
        None, description="of each text; length: a sentence of it was cut at max_tokens. Left out where none was"
    )
    alignment: list[list[WordPair]] | None = Field(
        None, description="of each text the words that correspond to its translation's, where alignment asks for it"
    )
    usage: Usage


class TranslateEvent(Response):
    """A piece of the translation."""

    text: str
    finish_reason: FinishReason | None = Field(None, description="length: a sentence was cut at max_tokens here")
