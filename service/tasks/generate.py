"""Generation: prompts continued, whole or piece by piece."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from model.package import Manifest, PackageTokenizer
from service.engine.admission import Permit
from service.engine.beam_search import BeamParams
from service.engine.constraints import Constraints
from service.engine.engine import Engine
from service.engine.sampling import SamplingParams
from service.errors import InvalidRequest, TooLarge
from service.schemas import (
    AnyEvent,
    AnyRequest,
    Choice,
    GenerateEvent,
    GenerateRequest,
    GenerateResponse,
    Response,
    Usage,
    UsageEvent,
)
from service.tasks.choices import ChoiceText, Piece, SampledChoice, SearchedChoices
from service.tasks.pool import Pool
from service.tasks.task import check_beam_size, check_memory, not_for
from service.tasks.texts import as_list, check_characters, check_ids, check_length, encode_all, expected_tokens
from service.turns import Turn

# What a beam search cannot do, and must not drop in silence. (Temperature and the like mean nothing to it.)
ONLY_SAMPLING = {
    *("logprobs", "stop_ids", "min_tokens", "logit_bias"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
}
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "logprobs")
CONSTRAINTS = ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "min_tokens")
MAX_LOGPROBS = 163_840  # of one answer: about ten megabytes, and a collection of garbage of 40 ms


class Generate:
    """A decoder's continuations of prompts."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, engine: Engine, pool: Pool) -> None:
        self._manifest, self._tokenizer, self._engine, self._pool = manifest, tokenizer, engine, pool

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Return the continuations of every prompt."""
        if not isinstance(request, GenerateRequest):
            raise not_for("generate", request)
        with self._admit(request, client) as permit:
            prompts = await self._prompts(request, permit)
            pieces: list[list[Piece]] = [[] for _ in range(len(prompts) * request.n)]
            async with aclosing(self._pieces(request, prompts, permit)) as found:
                async for piece in found:
                    pieces[piece.index].append(piece)
        return GenerateResponse(
            model=self._manifest.name,
            choices=[_choice(of_choice, request) for of_choice in pieces],
            usage=Usage(
                prompt_tokens=sum(map(len, prompts)),
                completion_tokens=sum(piece.completion_tokens for of_choice in pieces for piece in of_choice),
            ),
        )

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Yield pieces of all choices as they come, then the usage."""
        if not isinstance(request, GenerateRequest):
            raise not_for("generate", request)
        completion_tokens = 0
        with self._admit(request, client) as permit:
            prompts = await self._prompts(request, permit)
            async with aclosing(self._pieces(request, prompts, permit)) as pieces:
                async for piece in pieces:
                    completion_tokens += piece.completion_tokens
                    if piece.text or piece.finish_reason or piece.tokens:
                        yield GenerateEvent(
                            index=piece.index, text=piece.text, finish_reason=piece.finish_reason, logprobs=piece.tokens
                        )
        yield UsageEvent(usage=Usage(prompt_tokens=sum(map(len, prompts)), completion_tokens=completion_tokens))

    def _admit(self, request: GenerateRequest, client: str) -> Permit:
        """Take the request's permit, by what can be known before its texts are encoded."""
        self._check(request)
        if _has_ids(request):
            prompts, tokens = 1, len(request.prompt)
        else:
            texts: list[str] = as_list(request.prompt)  # type: ignore[arg-type]  # no ids, hence texts
            prompts, tokens = len(texts), expected_tokens(texts, self._manifest.limits.max_positions)
        slots = prompts * (request.beam_size if request.beam_size > 1 else request.n)
        return self._engine.admission.admit(client, slots, tokens)

    def _check(self, request: GenerateRequest) -> None:
        if not request.prompt and isinstance(request.prompt, list):
            raise InvalidRequest("prompt is empty; send at least one text", "prompt")
        check_ids(list(request.logit_bias), self._tokenizer.vocab_size, "logit_bias")
        check_ids(request.stop_ids, self._tokenizer.vocab_size, "stop_ids")
        if request.beam_size == 1:
            return
        check_beam_size(self._engine, request.beam_size)
        for field in sorted(ONLY_SAMPLING & request.model_fields_set):
            raise InvalidRequest(f"{field} goes with sampling; a beam search (beam_size > 1) has none", field)
        if request.n > request.beam_size:
            raise InvalidRequest(f"n is {request.n}; a beam search gives at most beam_size = {request.beam_size}", "n")

    async def _prompts(self, request: GenerateRequest, permit: Permit) -> list[list[int]]:
        """Return the prompts' ids; a text's begin with the start token."""
        special, limit = self._manifest.special_ids, self._manifest.limits.max_positions - 1
        assert special.start is not None
        if _has_ids(request):
            ids: list[int] = request.prompt  # type: ignore[assignment]  # as was seen
            check_length(len(ids), limit, "prompt")
            check_ids(ids, self._tokenizer.vocab_size, "prompt")
            return [ids]
        texts: list[str] = as_list(request.prompt)  # type: ignore[arg-type]  # no ids, hence texts
        for text in texts:
            check_characters(text, limit, "prompt")
        encodings = await encode_all(self._pool, permit, self._tokenizer, [(text,) for text in texts])
        prompts = [[special.start, *encoding.ids] for encoding in encodings]
        for prompt in prompts:
            check_length(len(prompt), limit, "prompt")
        return prompts

    def _check_logprobs(self, request: GenerateRequest, prompts: list[list[int]]) -> None:
        """Refuse an answer of too many log probabilities: each is an object of its own."""
        if request.logprobs is None:
            return
        tokens = sum(self._max_tokens(request, prompt) + request.echo * len(prompt) for prompt in prompts)
        values = tokens * request.n * (1 + request.logprobs)
        if values > MAX_LOGPROBS:
            asked = f"logprobs asks for {values} values, for all tokens of all choices"
            raise TooLarge(f"{asked}; the limit is {MAX_LOGPROBS} for one request", "logprobs")

    async def _pieces(
        self, request: GenerateRequest, prompts: list[list[int]], permit: Permit
    ) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of all choices as they come: a search brings all of a prompt's, sampling one by one."""
        self._check_logprobs(request, prompts)
        choices, turn = [], Turn()
        for choice in self._choices(request, prompts):
            check_memory(self._engine, choice.sequence)
            choices.append(choice)
            await turn.give()
        sequences = [choice.sequence for choice in choices]
        permit.settle(sum(each.width for each in sequences), sum(each.waiting_tokens for each in sequences))
        async with aclosing(self._engine.run(permit, sequences)) as outputs:
            async for sequence, output in outputs:
                choice = choices[sequence.place]
                for piece in choice.read(output):
                    yield piece
                if choice.is_done and output.finish_reason is None:
                    self._engine.abort(sequence)

    def _choices(self, request: GenerateRequest, prompts: list[list[int]]) -> Iterator[ChoiceText]:
        for place, prompt in enumerate(prompts):
            first = place * request.n
            if request.beam_size > 1:
                sequence = self._engine.sequence(self._beam_params(request, prompt), prompt)
                yield SearchedChoices(self._tokenizer, request, sequence, first)
                continue
            for number in range(request.n):
                sequence = self._engine.sequence(self._params(request, prompt, number), prompt)
                yield SampledChoice(self._tokenizer, request, sequence, first + number)

    def _beam_params(self, request: GenerateRequest, prompt: list[int]) -> BeamParams:
        most = self._max_tokens(request, prompt)
        return BeamParams(most, request.beam_size, request.length_penalty, n_best=request.n)

    def _params(self, request: GenerateRequest, prompt: list[int], number: int) -> SamplingParams:
        end = self._manifest.special_ids.end
        assert end is not None
        return SamplingParams(
            max_tokens=self._max_tokens(request, prompt),
            stop_ids=frozenset({end, *request.stop_ids}),
            prompt_logprobs=request.logprobs if request.echo else None,
            # Each choice of a seeded request has a seed of its own, or all would be alike.
            seed=None if request.seed is None else request.seed + number,
            constraints=Constraints(**{field: getattr(request, field) for field in CONSTRAINTS}),
            **{field: getattr(request, field) for field in SAMPLING},
        )

    def _max_tokens(self, request: GenerateRequest, prompt: list[int]) -> int:
        return min(request.max_tokens, self._manifest.limits.max_positions - len(prompt))


def _has_ids(request: GenerateRequest) -> bool:
    return isinstance(request.prompt, list) and bool(request.prompt) and isinstance(request.prompt[0], int)


def _choice(pieces: list[Piece], request: GenerateRequest) -> Choice:
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
