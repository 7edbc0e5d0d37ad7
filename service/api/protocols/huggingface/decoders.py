"""Pipelines over decoders and encoder–decoders: Hugging Face's bodies as native requests, and the answers back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel

from service.api.calls import Calls
from service.api.invalid import naming, native
from service.api.protocols.huggingface.bodies import Summarization, TextGeneration, Translation
from service.errors import InvalidRequest
from service.schemas import (
    GenerateEvent,
    GenerateRequest,
    GenerateResponse,
    SummarizeRequest,
    SummarizeResponse,
    TranslateRequest,
    TranslateResponse,
)

NAMES = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "beam_size": "num_beams",
    "suppress_ids": "suppress_tokens",
    "prompt": "inputs",
    "input": "inputs",
    "echo": "return_full_text",
    "target": "tgt_lang",
    "source": "src_lang",
}


SAMPLED = 1.0  # the temperature of transformers where nothing says another


class StreamedToken(BaseModel):
    """What an event adds to the text, with the number and log probability of its last token."""

    id: int
    text: str
    logprob: float
    special: bool = False


class StreamedText(BaseModel):
    """A piece of the text; the last one has the whole."""

    index: int
    token: StreamedToken
    generated_text: str | None = None


async def text_generation(calls: Calls, body: TextGeneration) -> Any:
    """Return the continuation of each prompt."""
    with naming(**NAMES):
        answer = await calls.answer_as(GenerateResponse, _generation(calls, body), "generate")
    return [{"generated_text": choice.text} for choice in answer.choices]


async def text_generation_events(calls: Calls, body: TextGeneration) -> AsyncGenerator[StreamedText, None]:
    """Yield the continuation of a prompt piece by piece, as TGI does."""
    if not isinstance(body.inputs, str):
        raise InvalidRequest("stream is for a single prompt; send inputs as a text", "stream")
    asked = _generation(calls, body).model_copy(update={"stream": True, "echo": False})
    if asked.beam_size in {None, 1}:  # of what is searched there are none
        asked = asked.model_copy(update={"logprobs": 0})
    text = body.inputs if body.parameters.return_full_text else ""
    index = 0
    with naming(**NAMES):
        async with aclosing(calls.events(asked, "generate")) as events:
            async for event in events:
                if not isinstance(event, GenerateEvent):
                    continue
                text += event.text
                index += len(event.logprobs or [])
                last = event.logprobs[-1] if event.logprobs else None
                token = StreamedToken(
                    id=last.id if last else 0,
                    text=event.text,
                    logprob=last.logprob or 0.0 if last else 0.0,
                    special=last is None and not event.text,  # what was searched is a text without tokens
                )
                yield StreamedText(index=index, token=token, generated_text=text if event.finish_reason else None)


def _generation(calls: Calls, body: TextGeneration) -> GenerateRequest:
    fields = body.parameters.native()
    if body.parameters.do_sample and (body.parameters.num_beams or 1) > 1:
        raise InvalidRequest("do_sample is true and num_beams more than 1; a search draws no tokens here", "do_sample")
    if body.parameters.do_sample and body.parameters.temperature == 0:
        raise InvalidRequest("do_sample is true and temperature 0; leave one of them out", "temperature")
    if body.parameters.do_sample and "temperature" not in fields:  # also where the package would be greedy
        package = calls.find(body.model, "generate").manifest.generation_for("generate")
        fields["temperature"] = package.temperature or SAMPLED
    return native(
        GenerateRequest,
        model=body.model,
        prompt=body.inputs,
        echo=bool(body.parameters.return_full_text),
        **fields,
    )


async def summarization(calls: Calls, body: Summarization) -> Any:
    """Return the summary of each text."""
    asked = native(
        SummarizeRequest,
        model=body.model,
        input=body.inputs,
        truncate=body.parameters.truncation != "do_not_truncate",
        **body.parameters.generate_parameters.native(SummarizeRequest),
    )
    with naming(**NAMES):
        answer = await calls.answer_as(SummarizeResponse, asked, "summarize")
    return [{"summary_text": summary} for summary in answer.summaries]


async def translation(calls: Calls, body: Translation) -> Any:
    """Return the translation of each text; the target may be left out where there is one."""
    parameters = body.parameters
    asked = native(
        TranslateRequest,
        model=body.model,
        input=body.inputs,
        source=parameters.src_lang or "auto",
        target=parameters.tgt_lang or _only_target(calls, body.model),
        **parameters.generate_parameters.native(TranslateRequest),
    )
    with naming(**NAMES):
        answer = await calls.answer_as(TranslateResponse, asked, "translate")
    return [{"translation_text": text} for text in answer.translations]


def _only_target(calls: Calls, model: str | None) -> str:
    languages = calls.find(model, "translate").manifest.languages
    assert languages is not None, "bug: the manifest says that a translator has languages"
    targets = {target for _, target in languages.directions} or set(languages.names)
    if len(targets) > 1:
        raise InvalidRequest("tgt_lang is missing; this model has several targets, see GET /languages", "tgt_lang")
    return next(iter(targets))
