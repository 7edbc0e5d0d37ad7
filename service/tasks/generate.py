"""Generation: prompts continued, whole or piece by piece."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from model.package import Detokenizer, Manifest, PackageTokenizer
from service.engine.beam_search import BeamParams
from service.engine.engine import Engine
from service.engine.sampling import SampledToken, SamplingParams
from service.errors import InvalidRequest
from service.schemas import (
    AnyEvent,
    AnyRequest,
    Choice,
    FinishReason,
    GenerateEvent,
    GenerateRequest,
    GenerateResponse,
    Response,
    TokenLogprob,
    TopLogprob,
    Usage,
    UsageEvent,
)
from service.tasks.merging import all_of, merge
from service.tasks.stopping import StopTexts
from service.tasks.task import as_list, check_ids, check_length, encode, not_for

# What a beam search cannot do, and must not drop in silence. (Temperature and the like mean nothing to it.)
ONLY_SAMPLING = {
    *("logprobs", "stop_ids", "min_tokens", "logit_bias"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
}


@dataclass
class _Piece:
    """New text of one choice, with the tokens behind it."""

    index: int  # of the choice
    text: str
    tokens: list[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    score: float | None = None
    completion_tokens: int = 0


Stream = Callable[[], AsyncGenerator[_Piece, None]]


class Generate:
    """A decoder's continuations of prompts."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, engine: Engine) -> None:
        self._manifest, self._tokenizer, self._engine = manifest, tokenizer, engine
        limits = engine.scheduler.limits
        self._max_slots = limits.max_slots
        self._at_once = min(limits.max_slots, limits.max_waiting_sequences)  # so one request alone is never refused

    async def predict(self, request: AnyRequest) -> Response:
        """Return the continuations of every prompt."""
        if not isinstance(request, GenerateRequest):
            raise not_for("generate", request)
        prompts = await self._prompts(request)
        pieces: list[list[_Piece]] = [[] for _ in range(len(prompts) * request.n)]

        async def collect(stream: Stream) -> None:
            async with aclosing(stream()) as opened:
                async for piece in opened:
                    pieces[piece.index].append(piece)

        works = [partial(collect, stream) for stream in self._streams(request, prompts)]
        await all_of(works, at_once=self._at_once)
        return GenerateResponse(
            model=self._manifest.name,
            choices=[_choice(of_choice, request) for of_choice in pieces],
            usage=Usage(
                prompt_tokens=sum(map(len, prompts)),
                completion_tokens=sum(piece.completion_tokens for of_choice in pieces for piece in of_choice),
            ),
        )

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Yield pieces of all choices as they come, then the usage."""
        if not isinstance(request, GenerateRequest):
            raise not_for("generate", request)
        prompts = await self._prompts(request)
        completion_tokens = 0
        streams = [stream() for stream in self._streams(request, prompts)]
        async with aclosing(merge(streams, at_once=self._at_once)) as pieces:
            async for _, piece in pieces:
                completion_tokens += piece.completion_tokens
                if piece.text or piece.finish_reason or piece.tokens:
                    yield GenerateEvent(
                        index=piece.index, text=piece.text, finish_reason=piece.finish_reason, logprobs=piece.tokens
                    )
        yield UsageEvent(usage=Usage(prompt_tokens=sum(map(len, prompts)), completion_tokens=completion_tokens))

    async def _prompts(self, request: GenerateRequest) -> list[list[int]]:
        """Return the prompts' ids; a text's begin with the start token."""
        special, limit = self._manifest.special_ids, self._manifest.limits.max_positions
        assert special.start is not None
        if request.prompt and isinstance(request.prompt, list) and isinstance(request.prompt[0], int):
            ids: list[int] = request.prompt
            check_ids(ids, self._tokenizer.vocab_size, "prompt")
            prompts = [ids]
        else:
            texts: list[str] = as_list(request.prompt)  # type: ignore[arg-type]  # as above
            prompts = [[special.start, *(await encode(self._tokenizer, text)).ids] for text in texts]
        if not prompts:
            raise InvalidRequest("prompt is empty; send at least one text", "prompt")
        for prompt in prompts:
            check_length(len(prompt), limit - 1, "prompt")
        check_ids(list(request.logit_bias), self._tokenizer.vocab_size, "logit_bias")
        check_ids(request.stop_ids, self._tokenizer.vocab_size, "stop_ids")
        if request.beam_size > self._max_slots:
            raise InvalidRequest(f"beam_size is {request.beam_size}; the limit is {self._max_slots}", "beam_size")
        if request.beam_size > 1:
            for field in sorted(ONLY_SAMPLING & request.model_fields_set):
                raise InvalidRequest(f"{field} goes with sampling; a beam search (beam_size > 1) has none", field)
        if request.beam_size > 1 and request.n > request.beam_size:
            raise InvalidRequest(f"n is {request.n}; a beam search gives at most beam_size = {request.beam_size}", "n")
        return prompts

    def _streams(self, request: GenerateRequest, prompts: list[list[int]]) -> list[Stream]:
        """Return what produces the choices: a search brings all of a prompt's at once, sampling each by itself."""
        if request.beam_size > 1:
            return [partial(self._search, request, prompt, place * request.n) for place, prompt in enumerate(prompts)]
        return [
            partial(self._sample, request, prompt, place * request.n + number, number)
            for place, prompt in enumerate(prompts)
            for number in range(request.n)
        ]

    async def _sample(
        self, request: GenerateRequest, prompt: list[int], index: int, number: int
    ) -> AsyncGenerator[_Piece, None]:
        """Yield the text of one choice, the `number`-th of its prompt."""
        detokenizer = Detokenizer(self._tokenizer, prompt)
        stop_texts = StopTexts(as_list(request.stop))
        params = self._params(request, prompt, number)
        async with aclosing(self._engine.generate(params, prompt)) as outputs:
            is_first = True
            async for output in outputs:
                if is_first and request.echo:
                    yield self._echo(request, prompt, output.prompt, index)
                is_first = False
                new_ids = [token.id for token in output.tokens]
                is_last = output.finish_reason is not None
                text = stop_texts.add(detokenizer.add(new_ids, is_last=is_last), is_last=is_last)
                reason = "stop" if stop_texts.is_met else output.finish_reason
                assert reason in {None, "stop", "length"}, "bug: an error is raised, not yielded"
                logprobs = None if request.logprobs is None else self._logprobs(output.tokens)
                yield _Piece(index, text, logprobs, reason, completion_tokens=len(new_ids))
                if stop_texts.is_met:
                    return

    async def _search(
        self, request: GenerateRequest, prompt: list[int], first_index: int
    ) -> AsyncGenerator[_Piece, None]:
        """Yield a prompt's `n` best hypotheses, each whole."""
        params = BeamParams(
            self._max_tokens(request, prompt), request.beam_size, request.length_penalty, n_best=request.n
        )
        async with aclosing(self._engine.generate(params, prompt)) as outputs:
            found = [hypothesis async for output in outputs for hypothesis in output.hypotheses]
        for rank in range(request.n):
            best = found[min(rank, len(found) - 1)]
            stop_texts = StopTexts(as_list(request.stop))
            text = stop_texts.add(Detokenizer(self._tokenizer, prompt).add(best.ids, is_last=True), is_last=True)
            reason: FinishReason = "stop" if stop_texts.is_met or best.finish_reason == "stop" else "length"
            if request.echo:
                yield self._echo(request, prompt, [], first_index + rank)
            yield _Piece(first_index + rank, text, None, reason, best.score, len(best.ids))

    def _echo(self, request: GenerateRequest, prompt: list[int], scored: list[SampledToken], index: int) -> _Piece:
        """Return the prompt as the first piece of a choice; `scored` are its tokens behind the first."""
        tokens = None
        if request.logprobs is not None:
            # The start token stands before a text without being part of it.
            is_text = isinstance(request.prompt, str) or isinstance(request.prompt[0], str)
            first = TokenLogprob(id=prompt[0], text=self._tokenizer.decode([prompt[0]]), logprob=None, top=[])
            tokens = [*([] if is_text else [first]), *self._logprobs(scored)]
        return _Piece(index, self._tokenizer.decode(prompt), tokens)

    def _params(self, request: GenerateRequest, prompt: list[int], number: int) -> SamplingParams:
        end = self._manifest.special_ids.end
        assert end is not None
        return SamplingParams(
            max_tokens=self._max_tokens(request, prompt),
            stop_ids=frozenset({end, *request.stop_ids}),
            prompt_logprobs=request.logprobs if request.echo else None,
            # Each choice of a seeded request has a seed of its own, or all would be alike.
            seed=None if request.seed is None else request.seed + number,
            **request.model_dump(
                include={
                    *("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty"),
                    *("frequency_penalty", "logit_bias", "min_tokens", "logprobs"),
                }
            ),
        )

    def _max_tokens(self, request: GenerateRequest, prompt: list[int]) -> int:
        return min(request.max_tokens, self._manifest.limits.max_positions - len(prompt))

    def _logprobs(self, tokens: list[SampledToken]) -> list[TokenLogprob]:
        decode = self._tokenizer.decode
        return [
            TokenLogprob(
                id=token.id,
                text=decode([token.id]),
                logprob=token.logprob,
                top=[TopLogprob(id=i, text=decode([i]), logprob=logprob) for i, logprob in token.top],
            )
            for token in tokens
        ]


def _choice(pieces: list[_Piece], request: GenerateRequest) -> Choice:
    """Put the pieces of one choice together."""
    last = pieces[-1]
    assert last.finish_reason is not None, "bug: a choice ended without a reason"
    return Choice(
        index=last.index,
        text="".join(piece.text for piece in pieces),
        finish_reason=last.finish_reason,
        score=last.score,
        logprobs=None if request.logprobs is None else [token for piece in pieces for token in piece.tokens or []],
    )
