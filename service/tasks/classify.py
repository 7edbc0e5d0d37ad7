"""Classification of texts, of pairs of texts, and of images."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Sequence

import numpy as np

from model.package import ImageFormat, Manifest, PackageTokenizer
from model.package.images import MAX_PIXELS, ImageError, decode_image, image_pixels
from service.engine.admission import Permit
from service.engine.batcher import Batcher
from service.engine.inputs import ImageInput
from service.engine.session import Array
from service.errors import InvalidRequest, TooLarge
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
from service.tasks.pool import Pool
from service.tasks.task import not_for
from service.tasks.texts import expected_tokens, one_shot_inputs
from service.turns import Turn

MAX_IMAGES_PIXELS = 4  # times those of one image: what all images of a request may have together
IMAGES_AT_ONCE = 16
# What takes as long as to encode one character of a text, for the pool.
CHARACTERS_A_BYTE = 16
PIXELS_A_CHARACTER = 16


class Classify:
    """An encoder's labels for texts, or for images if its package says so."""

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: PackageTokenizer | None,
        batcher: Batcher,
        pool: Pool,
        max_image_pixels: int = MAX_PIXELS,
    ) -> None:
        self._manifest, self._tokenizer, self._batcher, self._pool = manifest, tokenizer, batcher, pool
        self._max_image_pixels = max_image_pixels

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Return labels with scores for each input."""
        if not isinstance(request, ClassifyRequest):
            raise not_for("classify", request)
        given = _given(request)
        with self._batcher.admission.admit(client, len(given), self._expected_tokens(given)) as permit:
            tokens, rows = await self._rows(permit, given, request.truncate)
        results, turn = [], Turn()
        for row in rows:
            results.append(self._classification(row, request.top_k))
            await turn.give()
        return ClassifyResponse(model=self._manifest.name, results=results, usage=Usage(prompt_tokens=tokens))

    async def _rows(
        self, permit: Permit, given: Sequence[str | tuple[str, str]], truncate: bool
    ) -> tuple[int, list[Array]]:
        """Return how many tokens the inputs have, and the logits of each."""
        if self._manifest.image is not None:
            images = self._images(permit, given, self._manifest.image)
            rows = [row async for some in images for row in await self._batcher.run(permit, some)]
            return len(given) * self._manifest.limits.max_positions, rows
        assert self._tokenizer is not None, "bug: only models of images have no tokenizer"
        texts = [(each,) if isinstance(each, str) else each for each in given]
        limit = self._manifest.limits.max_input_tokens
        inputs = await one_shot_inputs(self._pool, permit, self._tokenizer, texts, limit, truncate=truncate)
        permit.settle(len(inputs), sum(item.tokens for item in inputs))
        return sum(item.tokens for item in inputs), await self._batcher.run(permit, inputs)

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Refuse: a classification comes whole."""
        raise not_for("classify", request)
        yield  # makes this an iterator, like the other tasks' streams

    def _expected_tokens(self, given: Sequence[str | tuple[str, str]]) -> int:
        if self._manifest.image is not None:
            return len(given) * self._manifest.limits.max_positions
        texts = [text for each in given for text in ((each,) if isinstance(each, str) else each)]
        return expected_tokens(texts, self._manifest.limits.max_input_tokens)

    async def _images(
        self, permit: Permit, given: Sequence[str | tuple[str, str]], image: ImageFormat
    ) -> AsyncGenerator[list[ImageInput], None]:
        """Decode images one after the other, and yield a few at a time, as many decoded ones would fill the memory.

        Small ones are decoded at once, as they must not wait behind large ones.
        """
        images: list[ImageInput] = []
        most = self._max_image_pixels
        left = MAX_IMAGES_PIXELS * most
        for each in given:
            if not isinstance(each, str):
                raise InvalidRequest("input is a pair; a model of images takes one image at a time", "input")
            content = await self._pool.run(permit, len(each) // CHARACTERS_A_BYTE, _content, each)
            pixels = await self._pool.run(permit, len(content) // CHARACTERS_A_BYTE, _pixels, content)
            left -= pixels
            if left < 0:
                raise TooLarge(f"input has more than {MAX_IMAGES_PIXELS * most:,} pixels in all its images", "input")
            decoded = await self._pool.run(
                permit, max(pixels, len(content)) // PIXELS_A_CHARACTER, _decoded, content, image, most
            )
            images.append(ImageInput(decoded, self._manifest.limits.max_positions))
            if len(images) == IMAGES_AT_ONCE:
                yield images
                images = []
        if images:
            yield images

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


def _content(given: str) -> bytes:
    """Return the bytes of base64 or of a data URL."""
    _, _, encoded = given.rpartition(",")  # what stands before the comma says only which kind of image it is
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise InvalidRequest(
            "input is not base64; send an image's bytes in base64, or as a data URL", "input"
        ) from None


def _pixels(content: bytes) -> int:
    try:
        return image_pixels(content)
    except ImageError as error:
        raise InvalidRequest(f"input: {error}", "input") from None


def _decoded(content: bytes, image: ImageFormat, max_pixels: int) -> Array:
    try:
        return decode_image(content, image, max_pixels)
    except ImageError as error:
        raise InvalidRequest(f"input: {error}", "input") from None
