"""Summaries of texts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from model.package import Manifest, PackageTokenizer
from service.engine.engine import Engine
from service.errors import EmptyInput, InvalidRequest
from service.schemas import (
    CUT,
    AnyEvent,
    AnyRequest,
    DecodingRequest,
    GenerateEvent,
    GenerateRequest,
    Response,
    SummarizeEvent,
    SummarizeRequest,
    SummarizeResponse,
)
from service.tasks.generate import Generate
from service.tasks.pool import Pool
from service.tasks.task import not_for
from service.tasks.texts import as_list


class Summarize:
    """What an encoder–decoder makes of a text behind the package's words for this task, with its defaults for it."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, engine: Engine, pool: Pool) -> None:
        self._generate = Generate(manifest, tokenizer, engine, pool, "summarize", "input")

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Return the summary of every text."""
        found = await self._generate.predict(_asked(request), client)
        reasons = [choice.finish_reason for choice in found.choices]
        return SummarizeResponse(
            model=found.model,
            summaries=[choice.text for choice in found.choices],
            finish_reasons=reasons if CUT in reasons else None,
            usage=found.usage,
        )

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Yield the summary of one text piece by piece, then the usage."""
        asked = _asked(request)
        if isinstance(asked.prompt, list) and len(asked.prompt) > 1:
            raise InvalidRequest("input is a list; only a single text can be streamed", "input")
        async with aclosing(self._generate.stream(asked, client)) as events:
            async for event in events:
                if not isinstance(event, GenerateEvent):
                    yield event
                elif event.text or event.finish_reason == CUT:
                    reason = event.finish_reason if event.finish_reason == CUT else None
                    yield SummarizeEvent(text=event.text, finish_reason=reason)


def _asked(request: AnyRequest) -> GenerateRequest:
    """Return a request as one for generation."""
    if not isinstance(request, SummarizeRequest):
        raise not_for("summarize", request)
    texts = as_list(request.input)
    if not texts:
        raise EmptyInput("input is empty; send at least one text", "input")
    fields = {name: getattr(request, name) for name in DecodingRequest.model_fields.keys() & request.model_fields_set}
    if request.stream and request.beam_size is None:
        fields["beam_size"] = 1  # a search shows nothing before its end
    return GenerateRequest(prompt=texts, truncate=request.truncate, **fields)
