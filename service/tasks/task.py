"""What the API asks of a task, and what all tasks share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

from model.package import Manifest, PackageTokenizer
from model.package.tokenizer import Encoding
from service.engine.batcher import Batcher
from service.engine.engine import Engine, EngineFailed
from service.engine.inputs import TextInput
from service.engine.scheduler import Overloaded
from service.errors import InternalError, InvalidRequest, ServerOverloaded
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

LONG_TEXT = 10_000  # characters, which take about a millisecond to encode


class Task(Protocol):
    """A model that answers requests: in this process, or behind a Serve handle."""

    manifest: Manifest

    async def predict(self, request: AnyRequest) -> Response:
        """Answer a request; raises a `ServiceError`."""

    def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece; raises a `ServiceError`, before the first event where it can."""

    async def health(self) -> ModelHealth:
        """Tell how it is doing."""

    @property
    def is_full(self) -> bool:
        """Whether any request would be refused now, as far as is known here."""

    async def close(self) -> None:
        """End what runs."""


class Work(Protocol):
    """What each kind of task does on its own: its verbs, over a tokenizer and an engine or a batcher."""

    async def predict(self, request: AnyRequest) -> Response:
        """Answer a request of its kind."""

    def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece."""


class LocalTask:
    """A model in this process: what all tasks share, around the work of one."""

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: PackageTokenizer | None,
        engine: Engine | Batcher,
        work: Work,
        *,
        stuck_after_s: float,
    ) -> None:
        self.manifest = manifest
        self._tokenizer, self._engine, self._work = tokenizer, engine, work
        self._stuck_after_s = stuck_after_s

    async def predict(self, request: AnyRequest) -> Response:
        """Answer a request: about tokens here, any other by the work."""
        if isinstance(request, TokenizeRequest | DetokenizeRequest):
            if self._tokenizer is None:
                raise InvalidRequest(f"model {self.manifest.name!r} takes images, and has no tokens", "model")
            if isinstance(request, TokenizeRequest):
                return await self._tokenize(request, self._tokenizer)
            return self._detokenize(request, self._tokenizer)
        with engine_errors():
            return await self._work.predict(request)

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece."""
        async with aclosing(self._work.stream(request)) as events:
            with engine_errors():
                async for event in events:
                    yield event

    async def health(self) -> ModelHealth:
        """Tell how the engine is doing."""
        load = self._engine.load()
        return ModelHealth(
            is_progressing=self._engine.is_progressing(self._stuck_after_s),
            waiting=load.waiting,
            queued_tokens=load.queued_tokens,
            slots_used=load.slots_used,
        )

    @property
    def is_full(self) -> bool:
        """Whether the engine's queue is full."""
        return self._engine.is_full

    async def close(self) -> None:
        """End what runs."""
        await self._engine.close()

    async def _tokenize(self, request: TokenizeRequest, tokenizer: PackageTokenizer) -> TokenizeResponse:
        results = []
        for text in as_list(request.input):
            encoding = await encode(tokenizer, text)
            rows = zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True)
            results.append([Token(id=i, token=token, start=start, end=end) for i, token, (start, end) in rows])
        return TokenizeResponse(model=self.manifest.name, results=results)

    def _detokenize(self, request: DetokenizeRequest, tokenizer: PackageTokenizer) -> DetokenizeResponse:
        several = [ids for ids in request.ids if isinstance(ids, list)] or [
            [token for token in request.ids if isinstance(token, int)]
        ]
        for ids in several:
            check_ids(ids, tokenizer.vocab_size, "ids")
        return DetokenizeResponse(model=self.manifest.name, results=[tokenizer.decode(ids) for ids in several])


async def encode(tokenizer: PackageTokenizer, text: str, pair: str | None = None) -> Encoding:
    """Encode a text; a long one in another thread, so that nobody else waits for it."""
    if len(text) + len(pair or "") <= LONG_TEXT:
        return tokenizer.encode(text, pair)
    return await asyncio.to_thread(tokenizer.encode, text, pair)


async def one_shot_input(
    tokenizer: PackageTokenizer, texts: tuple[str] | tuple[str, str], limit: int, *, truncate: bool
) -> TextInput:
    """Encode a text or a pair for an encoder; one of more than `limit` tokens is cut or refused."""
    encoding = await encode(tokenizer, *texts)
    if truncate:
        encoding = encoding.shortened(limit)
    check_length(len(encoding.ids), limit, "input")
    return TextInput(encoding.ids, encoding.segment_ids)


def check_ids(ids: list[int], vocab_size: int, param: str) -> None:
    """Refuse token ids that the vocabulary does not have."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequest(f"{param} has the token id {token}; ids go from 0 to {vocab_size - 1}", param)


def check_length(tokens: int, limit: int, param: str) -> None:
    """Refuse a text of too many tokens."""
    if tokens > limit:
        raise InvalidRequest(f"{param} has {tokens} tokens; the limit is {limit}", param)


def as_list(value: str | list[str]) -> list[str]:
    """Return one or several texts as a list."""
    return [value] if isinstance(value, str) else value


def not_for(task: str, request: Any) -> InvalidRequest:
    """Return the error of a request that another task answers."""
    return InvalidRequest(f"a model for {task} does not answer a {type(request).__name__}", "model")


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn the engine's errors into the client's."""
    try:
        yield
    except Overloaded:
        raise ServerOverloaded() from None
    except EngineFailed:
        raise InternalError("the model failed on this batch; try again") from None
