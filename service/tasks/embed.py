"""Vectors of texts."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from model.package import Manifest, PackageTokenizer
from service.engine.batcher import Batcher
from service.errors import InvalidRequest
from service.schemas import AnyEvent, AnyRequest, EmbedRequest, EmbedResponse, Response, Usage
from service.tasks.task import as_list, not_for, one_shot_input


class Embed:
    """An encoder's vectors, near one another where texts mean alike."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer | None, batcher: Batcher) -> None:
        self._manifest, self._tokenizer, self._batcher = manifest, tokenizer, batcher

    async def predict(self, request: AnyRequest) -> Response:
        """Return a vector for each text."""
        if not isinstance(request, EmbedRequest):
            raise not_for("embed", request)
        assert self._tokenizer is not None, "bug: the manifest says that only classifiers take images"
        texts = as_list(request.input)
        if not texts:
            raise InvalidRequest("input is empty; send at least one text", "input")
        limit = self._manifest.limits.max_input_tokens
        inputs = [await one_shot_input(self._tokenizer, (text,), limit, truncate=request.truncate) for text in texts]
        vectors = await self._batcher.run(inputs)
        return EmbedResponse(
            model=self._manifest.name,
            embeddings=[vector.tolist() for vector in vectors],
            usage=Usage(prompt_tokens=sum(item.tokens for item in inputs)),
        )

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Refuse: a vector comes whole."""
        raise not_for("embed", request)
        yield  # makes this an iterator, like the other tasks' streams
