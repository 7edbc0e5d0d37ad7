"""Pipelines over decoders and encoder–decoders: Hugging Face's bodies as native requests, and the answers back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import Response

from service.api.calls import Calls
from service.api.invalid import naming, native
from service.api.protocols.huggingface.bodies import Summarization, TextGeneration, Translation
from service.api.streaming import event_stream
from service.errors import InvalidRequest
from service.schemas import (
    Choice,
    GenerateEvent,
    GenerateRequest,
    GenerateResponse,
    SummarizeRequest,
    SummarizeResponse,
    TokenLogprob,
    TranslateRequest,
    TranslateResponse,
    UsageEvent,
)
from service.schemas.decoding import FinishReason
from service.tasks.texts import as_list

TGIFinishReason = Literal["length", "eos_token", "stop_sequence"]

NAMES = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "beam_size": "num_beams",
    "suppress_ids": "suppress_tokens",
    "prompt": "inputs",
    "input": "inputs",
    "logprobs": "details",
    "target": "tgt_lang",
    "source": "src_lang",
}


SAMPLED = 1.0  # the temperature of transformers where nothing says another


class GeneratedText(BaseModel):
    """The continuation of a prompt, with its tokens if they are asked for."""

    generated_text: str
    details: dict[str, Any] | None = None


class StreamedToken(BaseModel):
    """What an event adds to the text, with the number and log probability of its last token."""

    id: int
    text: str
    logprob: float
    special: bool = False


class StreamDetails(BaseModel):
    """How a text that was streamed has ended."""

    finish_reason: TGIFinishReason
    generated_tokens: int
    input_length: int
    seed: int | None


class StreamedText(BaseModel):
    """A piece of the text; the last one has the whole, and the details if they are asked for."""

    index: int
    token: StreamedToken
    generated_text: str | None = None
    details: StreamDetails | None = None


async def text_generation(calls: Calls, body: TextGeneration) -> Any:
    """Return the continuation of each prompt."""
    asked = _generation(calls, body)
    if body.parameters.details:
        asked = asked.model_copy(update={"logprobs": 0})
    with naming(**NAMES):
        answer = await calls.answer_as(GenerateResponse, asked, "generate")
    before = as_list(body.inputs) if body.parameters.return_full_text else [""] * len(answer.choices)
    texts = [{"generated_text": prompt + choice.text} for prompt, choice in zip(before, answer.choices, strict=True)]
    if not body.parameters.details:
        return texts
    ends = _ends(calls, body)
    return [
        {**text, "details": _details(choice, body, ends)} for text, choice in zip(texts, answer.choices, strict=True)
    ]


def _details(choice: Choice, body: TextGeneration, ends: set[int | None]) -> dict[str, Any]:
    """Return a text's tokens with their log probabilities, and why it ended; TGI has an end among its tokens."""
    tokens = choice.logprobs or []
    return {
        "finish_reason": _finish_reason(choice.finish_reason, tokens, body, ends),
        "generated_tokens": len(tokens),
        "seed": body.parameters.seed,
        "prefill": [],
        "tokens": [
            {"id": token.id, "text": token.text, "logprob": token.logprob, "special": token.id in ends}
            for token in tokens
        ],
    }


def _finish_reason(
    reason: FinishReason, tokens: Sequence[TokenLogprob], body: TextGeneration, ends: set[int | None]
) -> TGIFinishReason:
    if reason != "stop":
        return "length"
    stops = [*(body.parameters.stop or []), *(body.parameters.stop_sequences or [])]
    is_end = not tokens or tokens[-1].id in ends
    if is_end or not stops:
        return "eos_token"
    if body.parameters.grammar is None:
        return "stop_sequence"
    written = "".join(token.text for token in tokens)  # or it ends as it has its form
    return "stop_sequence" if any(stop in written for stop in stops) else "eos_token"


def _ends(calls: Calls, body: TextGeneration) -> set[int | None]:
    """Return the tokens that end an output."""
    manifest = calls.find(body.model, "generate").manifest
    return {manifest.special_ids.end, *manifest.generation_for("generate").end_ids}


async def generated(calls: Calls, body: TextGeneration) -> Any:
    """Return the continuation of one prompt, as TGI's own route does."""
    if not isinstance(body.inputs, str):
        raise InvalidRequest("inputs should be one text here; several go to /pipeline/text-generation", "inputs")
    return (await text_generation(calls, body))[0]


async def streamed(calls: Calls, body: TextGeneration, keep_alive_s: float) -> Response:
    """Return the continuation of a prompt as events; behind the last one TGI sends nothing, as its client expects."""
    return await event_stream(text_generation_events(calls, body), keep_alive_s, last="")


async def text_generation_events(calls: Calls, body: TextGeneration) -> AsyncGenerator[StreamedText, None]:
    """Yield the continuation of a prompt piece by piece, as TGI does."""
    if not isinstance(body.inputs, str):
        raise InvalidRequest("inputs should be one text, as a stream is for a single prompt", "inputs")
    asked = _generation(calls, body).model_copy(update={"stream": True})
    if not _is_searched(calls, asked):  # of what is searched there are none
        asked = asked.model_copy(update={"logprobs": 0})
    text, ends = body.inputs if body.parameters.return_full_text else "", _ends(calls, body)
    index = 0
    written: list[TokenLogprob] = []
    ended, reason = None, None
    with naming(**NAMES):
        async with aclosing(calls.events(asked, "generate")) as events:
            async for event in events:
                if isinstance(event, UsageEvent):  # behind all pieces
                    assert ended is not None and reason is not None, "bug: the last piece has a reason"
                    if body.parameters.details:
                        ended.details = StreamDetails(
                            finish_reason=reason,
                            generated_tokens=index,
                            input_length=event.usage.prompt_tokens,
                            seed=body.parameters.seed,
                        )
                    yield ended
                if not isinstance(event, GenerateEvent):
                    continue
                text += event.text
                tokens = event.logprobs or []
                written += tokens
                *said, last = _streamed(event.text, tokens, ends)
                index += len(tokens)
                for token in said:
                    yield StreamedText(index=index - 1, token=token)
                if event.finish_reason is None:
                    yield StreamedText(index=index, token=last)
                else:
                    ended = StreamedText(index=index, token=last, generated_text=text)
                    reason = _finish_reason(event.finish_reason, written, body, ends)


def _streamed(text: str, tokens: Sequence[TokenLogprob], ends: set[int | None]) -> list[StreamedToken]:
    """Return a piece of text as TGI's tokens: an end is one by itself, as clients pass over the text of special ones.

    What was searched has no tokens.
    """
    is_end = bool(tokens) and tokens[-1].id in ends
    found = []
    if text or not is_end:
        own = tokens[:-1] if is_end else tokens
        told = {"id": own[-1].id, "logprob": own[-1].logprob or 0.0} if own else {"id": 0, "logprob": 0.0}
        found.append(StreamedToken(**told, text=text, special=not text and not tokens))
    if is_end:
        found.append(StreamedToken(id=tokens[-1].id, text="", logprob=tokens[-1].logprob or 0.0, special=True))
    return found


def _generation(calls: Calls, body: TextGeneration) -> GenerateRequest:
    fields = body.parameters.native()
    if body.parameters.do_sample and (body.parameters.num_beams or 1) > 1:
        raise InvalidRequest("do_sample is true and num_beams more than 1; a search draws no tokens here", "do_sample")
    if body.parameters.do_sample and body.parameters.temperature == 0:
        raise InvalidRequest("do_sample is true and temperature 0; leave one of them out", "temperature")
    if body.parameters.do_sample and "temperature" not in fields:  # also where the package would be greedy
        package = calls.find(body.model, "generate").manifest.generation_for("generate")
        fields["temperature"] = package.temperature or SAMPLED
    asked = native(
        GenerateRequest,
        model=body.model,
        prompt=body.inputs,
        **fields,
    )
    if body.parameters.details and _is_searched(calls, asked):
        if asked.beam_size is None:
            problem = "this model searches unless num_beams is 1"
        else:
            problem = "a search (num_beams > 1) has none; leave one of them out"
        raise InvalidRequest(f"details are of tokens as they are chosen, and {problem}", "details")
    return asked


def _is_searched(calls: Calls, asked: GenerateRequest) -> bool:
    package = calls.find(asked.model, "generate").manifest.generation_for("generate")
    return asked.beams(package.beam_size or 1) > 1


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
