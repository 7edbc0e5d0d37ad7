"""Classification of texts and pairs of texts."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import numpy as np

from model.package import Manifest, PackageTokenizer
from service.engine.batcher import Batcher
from service.engine.session import Array
from service.errors import InvalidRequest
from service.schemas import (
    AnyEvent,
    AnyRequest,
    Classification,
    ClassifyRequest,
    ClassifyResponse,
    Label,
    Response,
    Usage,
)
from service.tasks.task import check_length, encode, not_for


class Classify:
    """An encoder's labels for texts."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, batcher: Batcher) -> None:
        self._manifest, self._tokenizer, self._batcher = manifest, tokenizer, batcher

    async def predict(self, request: AnyRequest) -> Response:
        """Return labels with scores for each input."""
        if not isinstance(request, ClassifyRequest):
            raise not_for("classify", request)
        encoded = [await self._encode(text, request.truncate) for text in _inputs(request)]
        rows = await self._batcher.run(encoded)
        return ClassifyResponse(
            model=self._manifest.name,
            results=[self._classification(row, request.top_k) for row in rows],
            usage=Usage(prompt_tokens=sum(len(ids) for ids, _ in encoded)),
        )

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Refuse: a classification comes whole."""
        raise not_for("classify", request)
        yield  # makes this an iterator, like the other tasks' streams

    async def _encode(self, text: str | tuple[str, str], truncate: bool) -> tuple[list[int], list[int]]:
        encoding = await encode(self._tokenizer, *((text,) if isinstance(text, str) else text))
        limit = self._manifest.limits.max_input_tokens
        if truncate and len(encoding.ids) > limit:  # the last token, SEP, stays the last
            return (
                [*encoding.ids[: limit - 1], encoding.ids[-1]],
                [*encoding.segment_ids[: limit - 1], encoding.segment_ids[-1]],
            )
        check_length(len(encoding.ids), limit, "input")
        return encoding.ids, encoding.segment_ids

    def _classification(self, logits: Array, top_k: int | None) -> Classification:
        weights = np.exp(logits.astype(np.float64) - logits.max())
        scores = weights / weights.sum()
        order = np.argsort(-scores, kind="stable")[:top_k]
        return Classification(
            labels=[Label(label=self._manifest.labels[i], score=float(scores[i])) for i in order.tolist()]
        )


def _inputs(request: ClassifyRequest) -> list[str] | list[tuple[str, str]]:
    inputs = request.input
    if isinstance(inputs, str):
        return [inputs]
    # JSON has no tuples: ["a", "b"] is two texts, and a pair is always inside a list.
    texts: list[str] | list[tuple[str, str]] = list(inputs)  # type: ignore[assignment]  # a list of one kind
    if not texts:
        raise InvalidRequest("input is empty; send at least one text", "input")
    return texts
