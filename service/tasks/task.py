"""What the API asks of a task, and what all tasks share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from model.package import Manifest, PackageTokenizer
from model.package.manifest import TOKENIZER_FILE
from service.engine.engine import Engine, EngineFailed
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


class Task(Protocol):
    """A model that answers requests: in this process, or behind a Serve handle."""

    manifest: Manifest

    async def predict(self, request: AnyRequest) -> Response:
        """Answer a request; raises a `ServiceError`."""

    def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece; raises a `ServiceError`, before the first event where it can."""

    async def health(self) -> ModelHealth:
        """Tell how it is doing."""

    async def close(self) -> None:
        """End what runs."""


class Texts:
    """A package's tokenizer, and the requests that need nothing else."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.name = manifest.name
        self.tokenizer = PackageTokenizer.load(folder / TOKENIZER_FILE)

    def tokenize(self, request: TokenizeRequest) -> TokenizeResponse:
        """Return the tokens of texts."""
        results = []
        for text in as_list(request.input):
            encoding = self.tokenizer.encode(text)
            rows = zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True)
            results.append([Token(id=i, token=token, start=start, end=end) for i, token, (start, end) in rows])
        return TokenizeResponse(model=self.name, results=results)

    def detokenize(self, request: DetokenizeRequest) -> DetokenizeResponse:
        """Return the texts of token ids."""
        several = [ids for ids in request.ids if isinstance(ids, list)] or [
            [token for token in request.ids if isinstance(token, int)]
        ]
        for ids in several:
            check_ids(ids, self.tokenizer.vocab_size, "ids")
        return DetokenizeResponse(model=self.name, results=[self.tokenizer.decode(ids) for ids in several])


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


def engine_health(engine: Engine, stuck_after_s: float) -> ModelHealth:
    """Tell how an engine is doing."""
    return ModelHealth(
        is_progressing=engine.is_progressing(stuck_after_s),
        waiting=engine.scheduler.waiting_sequences,
        slots_used=engine.scheduler.slots_used,
    )


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn the engine's errors into the client's."""
    try:
        yield
    except Overloaded:
        raise ServerOverloaded("too many requests are waiting; try again") from None
    except EngineFailed:
        raise InternalError("the model failed on this batch; try again") from None
