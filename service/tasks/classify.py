"""Classification of texts and pairs of texts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np

from model.package import Manifest
from service.engine.batcher import Batcher, BatcherLimits
from service.engine.session import Array, SessionOptions
from service.errors import InvalidRequest
from service.schemas import (
    AnyEvent,
    AnyRequest,
    Classification,
    ClassifyRequest,
    ClassifyResponse,
    DetokenizeRequest,
    Label,
    ModelHealth,
    Response,
    TokenizeRequest,
    Usage,
)
from service.tasks.task import Texts, check_length, engine_errors, not_for


class Classify:
    """An encoder's labels for texts."""

    def __init__(
        self, folder: Path, manifest: Manifest, options: SessionOptions, limits: BatcherLimits, *, stuck_after_s: float
    ) -> None:
        self.manifest = manifest
        self._stuck_after_s = stuck_after_s
        self._texts = Texts(folder, manifest)
        self._batcher = Batcher(folder, manifest, options, limits)

    async def predict(self, request: AnyRequest) -> Response:
        """Return labels with scores for each input."""
        if isinstance(request, TokenizeRequest):
            return self._texts.tokenize(request)
        if isinstance(request, DetokenizeRequest):
            return self._texts.detokenize(request)
        if not isinstance(request, ClassifyRequest):
            raise not_for("classify", request)
        encoded = [self._encode(text, request.truncate) for text in _inputs(request)]
        with engine_errors():
            rows = await self._batcher.run(encoded)
        return ClassifyResponse(
            model=self.manifest.name,
            results=[self._classification(row, request.top_k) for row in rows],
            usage=Usage(prompt_tokens=sum(len(ids) for ids, _ in encoded)),
        )

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Refuse: a classification comes whole."""
        raise not_for("classify", request)
        yield  # makes this an iterator, like the other tasks' streams

    async def health(self) -> ModelHealth:
        """Tell how the batcher is doing."""
        is_progressing = self._batcher.is_progressing(self._stuck_after_s)
        return ModelHealth(is_progressing=is_progressing, waiting=self._batcher.waiting_sequences)

    async def close(self) -> None:
        """Finish what waits."""
        await self._batcher.close()

    def _encode(self, text: str | tuple[str, str], truncate: bool) -> tuple[list[int], list[int]]:
        encoding = self._texts.tokenizer.encode(*((text,) if isinstance(text, str) else text))
        limit = self.manifest.limits.max_input_tokens
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
            labels=[Label(label=self.manifest.labels[i], score=float(scores[i])) for i in order.tolist()]
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
