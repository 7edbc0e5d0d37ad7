"""Vectors of texts."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from model.package import Manifest, PackageTokenizer
from service.engine.batcher import Batcher
from service.errors import InvalidRequest
from service.schemas import AnyEvent, AnyRequest, EmbedRequest, EmbedResponse, Response, Usage
from service.tasks.pool import Pool
from service.tasks.task import not_for
from service.tasks.texts import as_list, expected_tokens, one_shot_inputs


class Embed:
    """An encoder's vectors, near one another where texts mean alike."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer | None, batcher: Batcher, pool: Pool) -> None:
        self._manifest, self._tokenizer, self._batcher, self._pool = manifest, tokenizer, batcher, pool

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Return a vector for each text."""
        if not isinstance(request, EmbedRequest):
            raise not_for("embed", request)
        assert self._tokenizer is not None, "bug: the manifest says that only classifiers take images"
        texts = as_list(request.input)
        if not texts:
            raise InvalidRequest("input is empty; send at least one text", "input")
        limit = self._manifest.limits.max_input_tokens
        with self._batcher.admission.admit(client, len(texts), expected_tokens(texts, limit)) as permit:
            inputs = await one_shot_inputs(
                self._pool, permit, self._tokenizer, [(text,) for text in texts], limit, truncate=request.truncate
            )
            permit.settle(len(inputs), sum(item.tokens for item in inputs))
            vectors = await self._batcher.run(permit, inputs)
        return EmbedResponse(
            model=self._manifest.name,
            embeddings=[vector.tolist() for vector in vectors],
            usage=Usage(prompt_tokens=sum(item.tokens for item in inputs)),
        )

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Refuse: a vector comes whole."""
        raise not_for("embed", request)
        yield  # makes this an iterator, like the other tasks' streams
