"""Summaries."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from service.schemas.decoding import DecodingRequest, FinishReason
from service.schemas.request import MAX_INT32, Response, Text, Texts, Usage


class SummarizeRequest(DecodingRequest):
    """Texts to summarize. What is left out is as the package has it."""

    inputs: ClassVar = "input"

    input: Text | Texts = Field(
        description="a text, or a list of texts",
        examples=["The tower is 324 metres tall, as a house of 81 floors."],
    )
    beam_size: int | None = Field(
        None, ge=1, le=MAX_INT32, description="1 is greedy; the package's or 1 if left out, 1 when streaming"
    )
    truncate: bool = Field(False, description="cut the ends of texts that are too long instead of refusing them")
    stream: bool = Field(False, description="answer with server-sent events; for a single text")


class SummarizeResponse(Response):
    """A summary for each text."""

    model: str
    summaries: list[str]
    finish_reasons: list[FinishReason] | None = Field(
        None, description="of each text; length: its summary was cut at max_tokens. Left out where none was"
    )
    usage: Usage


class SummarizeEvent(Response):
    """A piece of the summary."""

    text: str
    finish_reason: FinishReason | None = Field(None, description="length: it was cut at max_tokens here")
