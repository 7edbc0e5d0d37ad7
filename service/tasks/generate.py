"""Generation: prompts continued, or texts turned into texts, whole or piece by piece."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

from model.package import Manifest, PackageTokenizer, TaskName
from service.engine.admission import Permit
from service.engine.engine import Engine
from service.engine.grammar import Grammar
from service.errors import InvalidRequest, TooLarge
from service.schemas import (
    AnyEvent,
    AnyRequest,
    Choice,
    FinishReason,
    GenerateEvent,
    GenerateRequest,
    GenerateResponse,
    Usage,
    UsageEvent,
)
from service.tasks.choices import ChoiceText, Piece, SampledChoice, SearchedChoices
from service.tasks.decoding_defaults import MAX_LOGPROBS, DecodingDefaults
from service.tasks.grammars import Grammars
from service.tasks.output_reader import OutputReader, reader_of
from service.tasks.pool import Pool
from service.tasks.prompts import Prompt, Prompts
from service.tasks.said import whole_calls
from service.tasks.stopping import ends_text
from service.tasks.task import check_beam_size, check_memory, not_for
from service.tasks.texts import as_list, check_copies
from service.tasks.tools.calling import check_calling, grammar_of
from service.turns import Turn


class Generate:
    """A decoder's continuations of prompts, or what an encoder–decoder makes of texts, for one of a package's tasks."""

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: PackageTokenizer,
        engine: Engine,
        pool: Pool,
        task: TaskName = "generate",
        param: str = "prompt",
        grammars: Grammars | None = None,
    ) -> None:
        self._manifest, self._tokenizer, self._engine = manifest, tokenizer, engine
        self._grammars = grammars
        prompt = manifest.task_prompts.get(task)
        # Whoever writes a prompt may write special tokens; whoever sends a text to be summarized means its words.
        plain = task == "summarize"
        self._prompts = Prompts(manifest, tokenizer, pool, prompt.prefix if prompt else "", param, plain=plain)
        self._chat = self._prompts.chat
        self._defaults = DecodingDefaults(manifest, task, engine)

    async def predict(self, request: AnyRequest, client: str) -> GenerateResponse:
        """Return the continuations of every prompt."""
        if not isinstance(request, GenerateRequest):
            raise not_for("generate", request)
        _check_best_of(request)
        drawn = _drawn(request)
        prompts, pieces = await self.run(drawn, client)
        chosen = pieces if drawn is request else best(pieces, drawn.n, request)
        choices, turn = [], Turn()
        for index, of_choice in enumerate(chosen):
            reader = reader_of(request, self._chat, prompts[index // request.n].ids)
            choices.append(_choice(index, of_choice, request, reader))
            await turn.give()
        return GenerateResponse(
            model=self._manifest.name,
            choices=choices,
            usage=Usage(
                prompt_tokens=sum(prompt.tokens for prompt in prompts),
                completion_tokens=sum(piece.completion_tokens for of_choice in pieces for piece in of_choice),
            ),
        )

    async def read(self, request: GenerateRequest, client: str) -> list[Prompt]:
        """Return the prompts as they would be read, without continuing any."""
        with self._admit(request, client) as permit:
            return await self._prompts.read(request, permit)

    async def run(self, request: GenerateRequest, client: str) -> tuple[list[Prompt], list[list[Piece]]]:
        """Return the prompts as they were read, and the pieces of every choice."""
        request = self._with_stop_texts(request)
        with self._admit(request, client) as permit:
            prompts = await self._prompts.read(request, permit)
            pieces: list[list[Piece]] = [[] for _ in range(len(prompts) * request.n)]
            async with aclosing(self._pieces(request, prompts, permit)) as found:
                async for piece in found:
                    pieces[piece.index].append(piece)
        return prompts, pieces

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Yield pieces of all choices as they come, then the usage."""
        if not isinstance(request, GenerateRequest):
            raise not_for("generate", request)
        _check_best_of(request)
        if request.best_of is not None and request.best_of > request.n:
            raise InvalidRequest("best_of chooses when all choices are there; leave it out to stream", "best_of")
        request = self._with_stop_texts(request)
        completion_tokens = 0
        with self._admit(request, client) as permit:
            prompts = await self._prompts.read(request, permit)
            readers = [reader_of(request, self._chat, prompt.ids) for prompt in prompts for _ in range(request.n)]
            async with aclosing(self._pieces(request, prompts, permit)) as pieces:
                async for piece in pieces:
                    completion_tokens += piece.completion_tokens
                    reader = readers[piece.index]
                    said = reader.add(piece.text, is_last=piece.finish_reason is not None)
                    if said.text or said.calls or said.reasoning or piece.finish_reason or piece.tokens:
                        yield GenerateEvent(
                            index=piece.index,
                            text=said.text,
                            finish_reason=piece.finish_reason and _finish_reason(piece.finish_reason, reader),
                            logprobs=piece.tokens,
                            reasoning=said.reasoning or None,
                            tool_calls=said.calls or None,
                        )
        prompt_tokens = sum(prompt.tokens for prompt in prompts)
        yield UsageEvent(usage=Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens))

    def _with_stop_texts(self, request: GenerateRequest) -> GenerateRequest:
        return request.model_copy(update={"stop": self._defaults.stop_texts(request)})

    def _admit(self, request: GenerateRequest, client: str) -> Permit:
        """Take the request's permit, by what can be known before its texts are encoded."""
        self._check(request)
        prompts, tokens = self._prompts.expected(request)
        return self._engine.admission.admit(client, prompts * max(self._beam_size(request), request.n), tokens)

    def _check(self, request: GenerateRequest) -> None:
        self._defaults.check(request)
        if request.echo and request.separate_reasoning:
            raise InvalidRequest("echo goes with no separate_reasoning; leave it out", "echo")
        if request.tool_choice is not None:
            check_calling(request, self._chat)
        beam_size = self._beam_size(request)
        if request.max_tokens == 0 and (not request.echo or beam_size > 1):
            raise InvalidRequest("max_tokens is 0, which goes with echo and no beam search; ask for 1", "max_tokens")
        if beam_size == 1:
            return
        if request.best_of is not None:
            raise InvalidRequest("best_of goes with sampling; a beam search (beam_size > 1) has its n best", "best_of")
        check_beam_size(self._engine, beam_size)
        if request.logprobs is not None:
            raise InvalidRequest("logprobs goes with sampling; a beam search (beam_size > 1) has none", "logprobs")
        if request.n > beam_size:
            raise InvalidRequest(f"n is {request.n}; a beam search gives at most beam_size = {beam_size}", "n")

    def _beam_size(self, request: GenerateRequest) -> int:
        return self._defaults.beam_size(request, wanted=request.n)

    def _check_logprobs(self, request: GenerateRequest, prompts: list[Prompt]) -> None:
        """Refuse an answer of too many log probabilities: each is an object of its own."""
        if request.logprobs is None:
            return
        tokens = sum(self._max_tokens(request, prompt) + request.echo * len(prompt.ids) for prompt in prompts)
        values = tokens * request.n * (1 + request.logprobs)
        if values > MAX_LOGPROBS:
            param = "logprobs" if request.best_of is None or request.logprobs else "best_of"  # which compares them
            asked = f"{param}: the log probabilities of all tokens of all choices are {values} values"
            raise TooLarge(f"{asked}; the limit is {MAX_LOGPROBS} for one request", param)

    async def _pieces(
        self, request: GenerateRequest, prompts: list[Prompt], permit: Permit
    ) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of all choices as they come: a search brings all of a prompt's, sampling one by one."""
        if request.echo:  # before each of its choices
            read = (len(prompt.ids) if prompt.text is None else len(prompt.text) for prompt in prompts)
            check_copies(request.n * sum(read), "echo")
        self._check_logprobs(request, prompts)
        choices, turn = [], Turn()
        grammars = await self._grammars_of(request, prompts, permit)
        for choice in self._choices(request, prompts, grammars):
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

    async def _grammars_of(
        self, request: GenerateRequest, prompts: list[Prompt], permit: Permit
    ) -> Sequence[Grammar | None]:
        if request.tool_choice is not None:
            assert self._chat is not None and self._grammars is not None, "bug: only conversations have tools"
            return [await grammar_of(request, self._chat, self._grammars, prompt.ids, permit) for prompt in prompts]
        if request.grammar is None:
            return [None] * len(prompts)
        assert self._grammars is not None, "bug: only requests of /generate have a grammar"
        return await self._grammars.compiled(request.grammar, [prompt.ids for prompt in prompts], permit)

    def _choices(
        self, request: GenerateRequest, prompts: list[Prompt], grammars: Sequence[Grammar | None]
    ) -> Iterator[ChoiceText]:
        beam_size = self._beam_size(request)
        for place, (prompt, grammar) in enumerate(zip(prompts, grammars, strict=True)):
            first, most, length = place * request.n, self._max_tokens(request, prompt), len(prompt.ids)
            if beam_size > 1:
                ends = ends_text(self._tokenizer, as_list(request.stop or []), prompt.ids, request.min_tokens or 0)
                search = self._defaults.search(
                    request,
                    beam_size,
                    most,
                    prompt_tokens=length,
                    n_best=request.n,
                    ends_text=ends,
                    grammar=grammar,
                )
                sequence = self._engine.sequence(search, prompt.ids, prompt.source)
                yield SearchedChoices(self._tokenizer, request, prompt, sequence, first)
                continue
            for number in range(request.n):
                sampling = self._defaults.sampling(request, most, prompt_tokens=length, number=number, grammar=grammar)
                sequence = self._engine.sequence(sampling, prompt.ids, prompt.source)
                sequence.repeats_prompt = number > 0
                yield SampledChoice(self._tokenizer, request, prompt, sequence, first + number)

    def _max_tokens(self, request: GenerateRequest, prompt: Prompt) -> int:
        return max(1, self._defaults.max_tokens(request, len(prompt.ids)))


def _check_best_of(request: GenerateRequest) -> None:
    if request.best_of is not None and request.best_of < request.n:
        raise InvalidRequest(f"best_of is {request.best_of}, less than n, {request.n}", "best_of")


def _drawn(request: GenerateRequest) -> GenerateRequest:
    """Return a request for all choices that are to be drawn, with what the best of them are known by."""
    if request.best_of is None or request.best_of == 1:
        return request
    return request.model_copy(update={"n": request.best_of, "logprobs": request.logprobs or 0})


def best(choices: list[list[Piece]], drawn: int, request: GenerateRequest) -> list[list[Piece]]:
    """Return of each prompt's `drawn` choices the `n` that are likeliest by the mean of their tokens, end included."""

    def likelihood(pieces: list[Piece]) -> float:
        own = pieces[1:] if request.echo else pieces  # the first is the prompt
        scores = [token.logprob or 0.0 for piece in own for token in piece.tokens or []]
        return sum(scores) / len(scores) if scores else -math.inf

    return [
        pieces
        for first in range(0, len(choices), drawn)
        for pieces in sorted(choices[first : first + drawn], key=likelihood, reverse=True)[: request.n]
    ]


def _choice(index: int, pieces: list[Piece], request: GenerateRequest, reader: OutputReader) -> Choice:
    """Put the pieces of one choice together."""
    last = pieces[-1]
    assert last.finish_reason is not None, "bug: a choice ended without a reason"
    text = "".join(piece.text for piece in pieces)
    said = reader.add(text, is_last=True)
    return Choice(
        index=index,
        text=said.text,
        finish_reason=_finish_reason(last.finish_reason, reader),
        score=last.score,
        logprobs=None if request.logprobs is None else [token for piece in pieces for token in piece.tokens or []],
        reasoning=said.reasoning or None,
        tool_calls=whole_calls(said.calls) or None,
    )


def _finish_reason(reason: FinishReason, reader: OutputReader) -> FinishReason:
    """Return why a choice ended; a call in which a stop text came is cut."""
    return "length" if reason == "stop" and reader.is_within_call else reason
