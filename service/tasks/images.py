"""Classification of images."""

from __future__ import annotations

import base64
import string
from collections.abc import AsyncGenerator, Sequence

import numpy as np

from model.package import ImageFormat, Manifest
from model.package.images import MAX_PIXELS, ImageError, decode_image, image_pixels
from service.engine.admission import Permit
from service.engine.arrays import Array
from service.engine.batcher import Batcher
from service.engine.inputs import ImageInput
from service.errors import EmptyInput, InvalidRequest, TooLarge
from service.schemas import ClassifyRequest, ClassifyResponse, Usage
from service.tasks.pool import Pool
from service.tasks.scores import classifications, label_scores

MAX_TOTAL_IMAGES = 4  # of the largest size, whose pixels all images of a request may have together
IMAGES_AT_ONCE = 16
# What takes as long as to encode one character of a text, for the pool.
CHARACTERS_PER_BYTE = 16
PIXELS_PER_CHARACTER = 16
_STANDARD = str.maketrans("-_", "+/", string.whitespace)


class ClassifyImages:
    """A vision transformer's labels for images."""

    def __init__(self, manifest: Manifest, batcher: Batcher, pool: Pool, max_image_pixels: int = MAX_PIXELS) -> None:
        assert manifest.image is not None, "bug: only a model of images is asked about images"
        self._manifest, self._image, self._batcher, self._pool = manifest, manifest.image, batcher, pool
        self._tokens = manifest.limits.max_positions  # of each image: its patches and CLS
        self._max_image_pixels = max_image_pixels

    async def predict(self, request: ClassifyRequest, client: str) -> ClassifyResponse:
        """Return labels with scores for each image."""
        for field in ("labels", "hypothesis_template"):
            if getattr(request, field) is not None:
                raise InvalidRequest(f"{field}: a model of images has its own labels and no others", field)
        for field in ("multi_label", "windows"):
            if getattr(request, field):
                raise InvalidRequest(f"{field} is for texts; this model reads images", field)
        given = [request.input] if isinstance(request.input, str) else request.input
        if not given:
            raise EmptyInput("input is empty; send at least one image", "input")
        tokens = len(given) * self._tokens
        with self._batcher.admission.admit(client, len(given), tokens) as permit:
            images = self._images(permit, given, self._image)
            rows = [row async for some in images for row in await self._batcher.run(permit, some)]
        scores = label_scores(np.stack(rows), self._manifest, request.activation)
        return ClassifyResponse(
            model=self._manifest.name,
            results=await classifications(scores, self._manifest.labels, request.top_k),
            usage=Usage(prompt_tokens=tokens),
        )

    async def _images(
        self, permit: Permit, given: Sequence[str | tuple[str, str]], image: ImageFormat
    ) -> AsyncGenerator[list[ImageInput], None]:
        """Decode images one after the other, and yield a few at a time, as many decoded ones would fill the memory.

        Small ones are decoded at once, as they must not wait behind large ones.
        """
        images: list[ImageInput] = []
        most = self._max_image_pixels
        left = MAX_TOTAL_IMAGES * most
        for each in given:
            if not isinstance(each, str):
                raise InvalidRequest("input is a pair; a model of images takes one image at a time", "input")
            content = await self._pool.run(permit, len(each) // CHARACTERS_PER_BYTE, _content, each)
            pixels = await self._pool.run(permit, len(content) // CHARACTERS_PER_BYTE, _pixels, content, image, most)
            left -= pixels
            if left < 0:
                raise TooLarge(f"input has more than {MAX_TOTAL_IMAGES * most:,} pixels in all its images", "input")
            decoded = await self._pool.run(
                permit, max(pixels, len(content)) // PIXELS_PER_CHARACTER, _decoded, content, image, most
            )
            images.append(ImageInput(decoded, self._tokens))
            if len(images) == IMAGES_AT_ONCE:
                yield images
                images = []
        if images:
            yield images


def _content(given: str) -> bytes:
    """Return the bytes of base64 or of a data URL."""
    _, _, encoded = given.rpartition(",")  # what stands before the comma says only which kind of image it is
    encoded = encoded.translate(_STANDARD)  # lines of 76 characters are common, and the alphabet for addresses too
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        raise InvalidRequest(
            "input is not base64; send an image's bytes in base64, or as a data URL", "input"
        ) from None


def _pixels(content: bytes, image: ImageFormat, max_pixels: int) -> int:
    try:
        return image_pixels(content, image, max_pixels)
    except ImageError as error:
        raise InvalidRequest(f"input: {error}", "input") from None


def _decoded(content: bytes, image: ImageFormat, max_pixels: int) -> Array:
    try:
        return decode_image(content, image, max_pixels)
    except ImageError as error:
        raise InvalidRequest(f"input: {error}", "input") from None
