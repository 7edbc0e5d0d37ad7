"""What the API asks of a task, and what all tasks share."""

from __future__ import annotations

import asyncio
from collections import abc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

from model.package import Manifest, PackageTokenizer
from model.package.tokenizer import Encoding
from service.engine.batcher import Batcher
from service.engine.engine import Engine
from service.engine.errors import EngineClosed, EngineFailed, Overloaded, Replaced
from service.engine.room import tokens_of
from service.engine.sequence import Sequence
from service.errors import InternalError, InvalidRequest, NotReady, ServerOverloaded, TooLarge, WrongTask
from service.schemas import (
    AnyEvent,
    AnyRequest,
    DetokenizeRequest,
    DetokenizeResponse,
    ModelHealth,
    Response,
    Token,
    TokenizeRequest,
    TokenizeResponse,
)
from service.tasks.pool import Pool
from service.tasks.texts import as_list, check_ids, encode_all, expected_tokens

MAX_TOKENIZED = 32_768  # characters or ids of one request; each is a line of the answer
ANONYMOUS = ""  # the client of a request that came without an API key


class Task(Protocol):
    """A model that answers requests: in this process, or behind a Serve handle."""

    manifest: Manifest
    is_remote: bool  # whether it is in another process

    async def predict(self, request: AnyRequest, client: str = ANONYMOUS) -> Response:
        """Answer a client's request; raises a `ServiceError`."""

    def stream(self, request: AnyRequest, client: str = ANONYMOUS) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece; raises a `ServiceError`, before the first event where it can."""

    async def health(self) -> ModelHealth:
        """Tell how it is doing."""

    def is_full_for(self, client: str) -> bool:
        """Whether any request of a client would be refused now, as far as is known here."""

    async def close(self) -> None:
        """End what runs."""


class Work(Protocol):
    """What each kind of task does on its own: its verbs, over a tokenizer and an engine or a batcher."""

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Answer a client's request of its kind."""

    def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece."""


class ByRequest:
    """The works of a model for several tasks: each answers requests of its own kind."""

    def __init__(self, manifest: Manifest, works: Mapping[type[AnyRequest], Work]) -> None:
        self._manifest, self._works = manifest, works

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Answer a request by the work that is for its kind."""
        return await self._work_for(request).predict(request, client)

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece."""
        async with aclosing(self._work_for(request).stream(request, client)) as events:
            async for event in events:
                yield event

    def _work_for(self, request: AnyRequest) -> Work:
        if type(request) not in self._works:
            raise not_for(" and ".join(self._manifest.tasks), request)
        return self._works[type(request)]


class Whole:
    """The work of what answers whole."""

    def __init__(self, predict: Callable[..., Awaitable[Response]]) -> None:
        self._predict = predict

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Answer a client's request of its kind."""
        return await self._predict(request, client)

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Refuse."""
        raise WrongTask(f"a {type(request).__name__} is answered whole, not streamed", "stream")
        yield  # makes this an iterator, like the streams of other works


class Closing(Protocol):
    """What has a thread of its own."""

    async def close(self) -> None:
        """Free the thread."""


class LocalTask:
    """A model in this process: what all tasks share, around the work of one."""

    is_remote = False

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: PackageTokenizer | None,
        engine: Engine | Batcher,
        pool: Pool,
        work: Work,
        *,
        stuck_after_s: float,
        other_pools: abc.Sequence[Closing] = (),
        watched: abc.Sequence[Pool] = (),
    ) -> None:
        """`other_pools` end with the model; of the `watched` among them none may stall."""
        self.manifest = manifest
        self._tokenizer, self._engine, self._pool, self._work = tokenizer, engine, pool, work
        self._stuck_after_s = stuck_after_s
        self.asked = 0  # requests that have begun
        self._pools: abc.Sequence[Closing] = (pool, *other_pools)
        self._watched = (pool, *watched)

    async def predict(self, request: AnyRequest, client: str = ANONYMOUS) -> Response:
        """Answer a request: about tokens here, any other by the work."""
        self.asked += 1
        with engine_errors():
            if isinstance(request, TokenizeRequest):
                return await self._tokenize(request, client)
            if isinstance(request, DetokenizeRequest):
                return await self._detokenize(request, client)
            return await self._work.predict(request, client)

    async def stream(self, request: AnyRequest, client: str = ANONYMOUS) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece."""
        self.asked += 1
        async with aclosing(self._work.stream(request, client)) as events:
            with engine_errors():
                async for event in events:
                    yield event

    async def health(self) -> ModelHealth:
        """Tell how the engine is doing."""
        load = self._engine.load()
        return ModelHealth(
            is_progressing=self.is_progressing,
            waiting=load.waiting,
            queued_tokens=load.queued_tokens,
            slots_used=load.slots_used,
            provider=self._engine.provider,
        )

    @property
    def is_progressing(self) -> bool:
        """Whether it is idle, or finishes steps, explanations, and pieces of long texts and images."""
        stalled_s = max(pool.stalled_s() for pool in self._watched)
        return self._engine.is_progressing(self._stuck_after_s) and stalled_s < self._stuck_after_s

    @property
    def is_busy(self) -> bool:
        """Whether requests wait or run."""
        load = self._engine.load()
        return load.waiting + load.running > 0

    def is_full_for(self, client: str) -> bool:
        """Whether the queue is full for a client."""
        return self._engine.admission.is_full_for(client)

    async def close(self) -> None:
        """End what runs."""
        await asyncio.gather(self._engine.close(), *(pool.close() for pool in self._pools))  # one may be stuck

    def _needed_tokenizer(self) -> PackageTokenizer:
        if self._tokenizer is None:
            raise WrongTask(f"model {self.manifest.name!r} takes images, and has no tokens", "model")
        return self._tokenizer

    async def _tokenize(self, request: TokenizeRequest, client: str) -> TokenizeResponse:
        tokenizer, texts = self._needed_tokenizer(), as_list(request.input)
        check_total(sum(map(len, texts)), MAX_TOKENIZED, "characters", "input")
        with self._engine.admission.admit(client, len(texts), expected_tokens(map(len, texts))) as permit:
            given = [(text,) for text in texts]
            special = request.add_special_tokens
            results = await encode_all(self._pool, permit, tokenizer, given, _tokens, adds_special=special)
        return TokenizeResponse(model=self.manifest.name, results=results)

    async def _detokenize(self, request: DetokenizeRequest, client: str) -> DetokenizeResponse:
        tokenizer = self._needed_tokenizer()
        several = request.lists()
        check_total(sum(map(len, several)), MAX_TOKENIZED, "ids", "ids")
        for ids in several:
            check_ids(ids, tokenizer.vocab_size, "ids")
        with self._engine.admission.admit(client, len(several), sum(map(len, several))) as permit:
            skips = request.skip_special_tokens
            results = [
                await self._pool.run(permit, len(ids), tokenizer.decode, ids, skips_special=skips) for ids in several
            ]
        return DetokenizeResponse(model=self.manifest.name, results=results)


def _tokens(_place: int, encoding: Encoding) -> list[Token]:
    rows = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special, strict=True)
    return [Token(id=i, token=token, start=start, end=end, special=special) for i, token, (start, end), special in rows]


def check_total(total: int, limit: int, what: str, param: str) -> None:
    """Refuse a request that brings too much in all."""
    if total > limit:
        raise TooLarge(f"{param} has {total} {what}; the limit is {limit} for one request", param)


def check_beam_size(engine: Engine, beam_size: int) -> None:
    """Refuse a search wider than the cache gives one."""
    limit = engine.scheduler.limits.max_width
    if beam_size > limit:
        raise InvalidRequest(f"beam_size is {beam_size}; the limit is {limit}", "beam_size")


def check_memory(engine: Engine, sequence: Sequence) -> None:
    """Refuse a search so wide and long that the KV cache could not hold it beside others."""
    scheduler = engine.scheduler
    tokens, limit = tokens_of(sequence, scheduler.budget), scheduler.most_tokens(sequence)
    if tokens > limit:
        asked = f"prompt and output of all beams come to {tokens} tokens of the KV cache"
        raise InvalidRequest(f"{asked}; the limit is {limit}; ask for fewer beams or tokens", "beam_size")


def not_for(task: str, request: Any) -> WrongTask:
    """Return the error of a request that another task answers."""
    return WrongTask(f"a model for {task} does not answer a {type(request).__name__}", "model")


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn the engine's errors into the client's."""
    try:
        yield
    except Overloaded:
        raise ServerOverloaded() from None
    except Replaced:
        raise InternalError("the files of the model's package have changed since it was loaded; restart it") from None
    except EngineClosed:
        raise NotReady("the model is closed, or restarting after a failure; try again") from None
    except EngineFailed:
        raise InternalError("the model failed on this input") from None
