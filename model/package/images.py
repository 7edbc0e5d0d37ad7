"""Images as a model takes them."""

from __future__ import annotations

import io
import re
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from model.package.manifest import ImageFormat

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")  # Pillow's other readers are rarely needed, and less well kept
MAX_PIXELS = 16_000_000  # of an image to decode; a small file can hold a huge one
WHOLE_PIXELS = 1_000_000  # up to which an image is decoded as it is, and not in a smaller size
MAX_SCANS = 30  # of a JPEG; programs make about ten, and each is a pass over the whole image
# Markers of JPEG (ITU-T T.81, table B.1) but those that stand within a pass. No more than one byte is looked at before
# the kind: a run of them would be looked at from each of its bytes. Those from C0 on, but for two, have a length.
MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
SCAN, END = b"\xda", b"\xd9"
FIRST_WITH_LENGTH, START = b"\xc0", b"\xd8"
PNG_BEGINS = b"\x89PNG\r\n\x1a\n"
PNG_PACKED = frozenset({b"zTXt", b"iTXt", b"iCCP"})  # chunks of texts and a colour profile, which may be compressed
# How texts begin that tell how a camera was held, by their chunks: a name, and how they are packed.
HELD_BY = {b"zTXt": b"Raw profile type exif\0\0", b"iTXt": b"XML:com.adobe.xmp\0\0"}
PNG_TEXT = 2**18  # bytes of one, unpacked
PNG_AROUND = 12  # bytes of a chunk beside its content: length, kind, checksum
ORIENTATION = 0x0112  # EXIF's tag, and by which turn of a picture each of its values is undone
UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


class ImageError(ValueError):
    """Bytes are not an image, or not one that may be decoded."""


def decode_image(content: bytes, image: ImageFormat, max_pixels: int = MAX_PIXELS) -> NDArray[np.float32]:
    """Return the pixels (C, size, size) of a file's bytes, resized and normalised; raises `ImageError`.

    The size is taken from the file's header, so what is too large is refused before it is decoded. Of several frames
    only the first is. A plain function that may run in any thread: decoding and resizing let others run meanwhile.
    """
    from PIL import Image  # only who serves images needs it

    try:
        with Image.open(io.BytesIO(_without_packed(content)), formats=FORMATS) as opened:
            _check_size(opened, max_pixels)
            _read_small(opened, content, image)
            upright = _upright(opened)
            # Of 16 bits Pillow would clip all above 255 to white.
            shades = upright.point(lambda value: value / 256) if upright.mode.startswith("I;16") else upright
            mode = "L" if image.channels == 1 else "RGB"
            converted = shades if shades.mode == mode else shades.convert(mode)
            resized = _resized(converted, image, max_pixels)
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):  # from 90 million on
        raise _too_many(max_pixels) from None
    except Exception:  # Pillow's readers raise a dozen kinds of errors over broken files
        raise _unreadable() from None
    pixels = np.asarray(resized, np.uint8).reshape(image.size, image.size, image.channels)
    return normalised(pixels.transpose(2, 0, 1)[None], image)[0]


def image_pixels(content: bytes, image: ImageFormat, max_pixels: int = MAX_PIXELS) -> int:
    """Return how many pixels a file's header promises, or the larger picture that is made of them, without decoding it.

    Raises `ImageError`.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(_without_packed(content)), formats=FORMATS) as opened:
            _check_size(opened, max_pixels)
            width, height = _enlarged(opened.size, image, max_pixels)
            return max(opened.width * opened.height, width * height)
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many(max_pixels) from None
    except Exception:  # as above
        raise _unreadable() from None


def _check_size(opened: Image.Image, max_pixels: int) -> None:
    if opened.width * opened.height > max_pixels:
        raise ImageError(f"the image has {opened.width} × {opened.height} pixels; the limit is {max_pixels:,}")


def _too_many(max_pixels: int) -> ImageError:
    return ImageError(f"the image has too many pixels; the limit is {max_pixels:,}")


def _unreadable() -> ImageError:
    return ImageError(f"the bytes are not an image that can be read; {', '.join(FORMATS)} can")


def _without_packed(content: bytes) -> bytes:
    """Return a PNG without what may be compressed beside its pixels, of which a few bytes unpack to a megabyte.

    Of the texts that tell how a camera was held the first of each name stays.
    """
    if not content.startswith(PNG_BEGINS):
        return content
    kept, place = [PNG_BEGINS], len(PNG_BEGINS)
    seen: set[bytes] = set()
    while place < len(content):
        end = place + PNG_AROUND + int.from_bytes(content[place : place + 4], "big")
        kind = content[place + 4 : place + 8]
        if kind not in PNG_PACKED or _tells_how_held(kind, content[place + 8 : end - 4], seen):
            kept.append(content[place:end])
        place = end
    return b"".join(kept)


def _tells_how_held(kind: bytes, text: bytes, seen: set[bytes]) -> bool:
    """Whether a text is the first of its kind that may have an orientation in it, and not long."""
    begins = HELD_BY.get(kind)
    if begins is None or kind in seen or not text.startswith(begins):
        return False
    seen.add(kind)
    if kind == b"iTXt":  # as it is
        return True
    unpacking = zlib.decompressobj()
    try:
        unpacking.decompress(text[len(begins) :], PNG_TEXT)
    except zlib.error:
        return False
    return not unpacking.unconsumed_tail


def _enlarged(size: tuple[int, int], image: ImageFormat, max_pixels: int) -> tuple[int, int]:
    """Return the width and height to which a picture is resized before its middle is taken; raises `ImageError`."""
    side = image.resize or image.size
    if not image.keeps_ratio:
        return side, side
    width, height = (int(side * each / min(size)) for each in size)
    if width * height > max_pixels:  # a thin one grows a thousandfold
        sides = f"{size[0]} × {size[1]} pixels"
        raise ImageError(
            f"the image has {sides}, and {width} × {height} as the model takes it; the limit is {max_pixels:,}"
        )
    return width, height


def _resized(picture: Image.Image, image: ImageFormat, max_pixels: int) -> Image.Image:
    """Return a picture as large as the model takes it: the middle of one that may be larger; raises `ImageError`."""
    from PIL import Image

    width, height = _enlarged(picture.size, image, max_pixels)
    resized = picture.resize((width, height), Image.Resampling[image.resampling.upper()])
    left, top = (width - image.size) // 2, (height - image.size) // 2
    return resized.crop((left, top, left + image.size, top + image.size)) if image.resize else resized


def _read_small(opened: Image.Image, content: bytes, image: ImageFormat) -> None:
    """Have a large JPEG decoded in a half, a quarter or an eighth of its size, at least twice what the model takes."""
    if opened.format not in {"JPEG", "MPO"}:  # the latter has further pictures behind the first, as of some telephones
        return
    if _has_many_scans(content):
        raise ImageError(f"the JPEG has more than {MAX_SCANS} scans; save it as a baseline JPEG")
    if opened.width * opened.height > WHOLE_PIXELS:
        wanted = 2 * (image.resize or image.size)
        opened.draft("L" if image.channels == 1 else "RGB", (wanted, wanted))


def _has_many_scans(content: bytes) -> bool:
    """Whether the first picture of a JPEG comes in too many passes; what is behind it, as a film, does not count."""
    scans, place = 0, 0
    while found := MARKER.search(content, place):
        kind, place = found[1], found.end()
        if kind == END:
            return False
        scans += kind == SCAN
        if scans > MAX_SCANS:
            return True
        if kind >= FIRST_WITH_LENGTH and kind != START:
            place += int.from_bytes(content[place : place + 2], "big")
    return False


def _upright(opened: Image.Image) -> Image.Image:
    """Return a photograph as its camera was held, which it says beside its pixels (EXIF); what says it wrongly stays.

    Pillow's `exif_transpose` would also write all the file's tags anew, which takes a tenth of a second for thousands.
    """
    from PIL import Image

    opened.load()
    with suppress(Exception):  # readers of broken EXIF raise a dozen kinds of errors, too
        return opened.transpose(Image.Transpose[UPRIGHT[opened.getexif()[ORIENTATION]]])
    return opened


def normalised(pixels: NDArray[np.uint8], image: ImageFormat) -> NDArray[np.float32]:
    """Map pixels (B, C, H, W), 0 to 255, to what a model learns from: 0 to 1, less the mean, over the deviation."""
    mean, deviation = (np.array(values, np.float32)[:, None, None] for values in (image.mean, image.deviation))
    scaled: NDArray[Any] = (pixels.astype(np.float32) / np.float32(255) - mean) / deviation
    return scaled
