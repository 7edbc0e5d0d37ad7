"""Classification of texts, of pairs of texts, and of images."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator

import numpy as np

from model.package import ImageFormat, Manifest, PackageTokenizer
from model.package.images import ImageError, decode_image
from service.engine.batcher import Batcher
from service.engine.inputs import ImageInput, OneShotInput
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
from service.tasks.task import not_for, one_shot_input


class Classify:
    """An encoder's labels for texts, or for images if its package says so."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer | None, batcher: Batcher) -> None:
        self._manifest, self._tokenizer, self._batcher = manifest, tokenizer, batcher

    async def predict(self, request: AnyRequest) -> Response:
        """Return labels with scores for each input."""
        if not isinstance(request, ClassifyRequest):
            raise not_for("classify", request)
        inputs = [await self._input(given, request.truncate) for given in _given(request)]
        rows = await self._batcher.run(inputs)
        return ClassifyResponse(
            model=self._manifest.name,
            results=[self._classification(row, request.top_k) for row in rows],
            usage=Usage(prompt_tokens=sum(item.tokens for item in inputs)),
        )

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Refuse: a classification comes whole."""
        raise not_for("classify", request)
        yield  # makes this an iterator, like the other tasks' streams

    async def _input(self, given: str | tuple[str, str], truncate: bool) -> OneShotInput:
        image = self._manifest.image
        if image is not None:
            if not isinstance(given, str):
                raise InvalidRequest("input is a pair; a model of images takes one image at a time", "input")
            return await asyncio.to_thread(_decoded, given, image, self._manifest.limits.max_positions)
        assert self._tokenizer is not None, "bug: only models of images have no tokenizer"
        texts = (given,) if isinstance(given, str) else given
        return await one_shot_input(self._tokenizer, texts, self._manifest.limits.max_input_tokens, truncate=truncate)

    def _classification(self, logits: Array, top_k: int | None) -> Classification:
        weights = np.exp(logits.astype(np.float64) - logits.max())
        scores = weights / weights.sum()
        order = np.argsort(-scores, kind="stable")[:top_k]
        return Classification(
            labels=[Label(label=self._manifest.labels[i], score=float(scores[i])) for i in order.tolist()]
        )


def _given(request: ClassifyRequest) -> list[str] | list[tuple[str, str]]:
    inputs = request.input
    if isinstance(inputs, str):
        return [inputs]
    # JSON has no tuples: ["a", "b"] is two texts, and a pair is always inside a list.
    texts: list[str] | list[tuple[str, str]] = list(inputs)  # type: ignore[assignment]  # a list of one kind
    if not texts:
        raise InvalidRequest("input is empty; send at least one text", "input")
    return texts


def _decoded(given: str, image: ImageFormat, tokens: int) -> ImageInput:
    """Return the image of base64 or of a data URL."""
    _, _, encoded = given.rpartition(",")  # what stands before the comma says only which kind of image it is
    try:
        content = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise InvalidRequest(
            "input is not base64; send an image's bytes in base64, or as a data URL", "input"
        ) from None
    try:
        return ImageInput(decode_image(content, image), tokens)
    except ImageError as error:
        raise InvalidRequest(f"input: {error}", "input") from None
