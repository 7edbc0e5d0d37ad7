"""Images as a model takes them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.package.manifest import ImageFormat

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")  # Pillow's other readers are rarely needed, and less well kept
MOST_PIXELS = 50_000_000  # of an image to decode; a small file can hold a huge one


class ImageError(ValueError):
    """Bytes are not an image, or not one that may be decoded."""


def decode_image(data: bytes, image: ImageFormat) -> NDArray[np.float32]:
    """Return the pixels (C, size, size) of a file's bytes, resized and normalised; raises `ImageError`."""
    from PIL import Image  # only who serves images needs it

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise ImageError(f"the image has {opened.width} × {opened.height} pixels; the limit is {MOST_PIXELS:,}")
            # Of 16 bits Pillow would clip all above 255 to white.
            shades = opened.point(lambda value: value / 256) if opened.mode.startswith("I;16") else opened
            converted = shades.convert("L" if image.channels == 1 else "RGB")
            resized = converted.resize((image.size, image.size), Image.Resampling.BILINEAR)
    except ImageError:
        raise
    except Exception:  # Pillow's readers raise a dozen kinds of errors over broken files
        raise ImageError(f"the bytes are not an image that can be read; {', '.join(FORMATS)} can") from None
    pixels = np.asarray(resized, np.uint8).reshape(image.size, image.size, image.channels)
    return normalised(pixels.transpose(2, 0, 1)[None], image)[0]


def normalised(pixels: NDArray[np.uint8], image: ImageFormat) -> NDArray[np.float32]:
    """Map pixels (B, C, H, W), 0 to 255, to what a model learns from: 0 to 1, less the mean, over the deviation."""
    mean, deviation = (np.array(values, np.float32)[:, None, None] for values in (image.mean, image.deviation))
    scaled: NDArray[Any] = (pixels.astype(np.float32) / np.float32(255) - mean) / deviation
    return scaled
