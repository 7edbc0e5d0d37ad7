from __future__ import annotations

import io
import struct
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from model.package import ImageFormat
from model.package.images import MAX_SCANS, ImageError, decode_image, image_pixels, normalised
from tests.png import chunk
from tests.service.garbage import frozen

ORIENTATION = 0x0112
GREY = ImageFormat(size=28, channels=1, mean=[0.286], deviation=[0.353])
COLOUR = ImageFormat(size=32, channels=3, mean=[0.5] * 3, deviation=[0.25] * 3)


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Return a picture with soft shapes, as photographs have."""
    x, y = np.meshgrid(np.linspace(0, 6, width), np.linspace(0, 4, height))
    shades = [np.sin(x + phase) * np.cos(y - phase) * 127 + 128 for phase in (0, 1, 2)]
    return Image.fromarray(np.stack(shades, -1).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def plainly(content: bytes, image: ImageFormat) -> NDArray[np.float32]:
    """Decode as the models' training does."""
    opened = Image.open(io.BytesIO(content)).convert("L" if image.channels == 1 else "RGB")
    resized = np.asarray(opened.resize((image.size, image.size), Image.Resampling.BILINEAR))
    planes = resized.reshape(1, image.size, image.size, -1).transpose(0, 3, 1, 2)
    pixels: NDArray[np.float32] = normalised(planes, image)[0]
    return pixels


@pytest.mark.parametrize("image", [GREY, COLOUR])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_images_of_usual_size_are_decoded_to_the_bit_as_they_always_were(kind: str, image: ImageFormat) -> None:
    for mode in ("RGB", "L", "P"):
        if (kind, mode) != ("JPEG", "P"):
            content = encoded(picture(640, 480, mode), kind)
            np.testing.assert_array_equal(decode_image(content, image), plainly(content, image))


@pytest.mark.parametrize("turn", [Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180])
def test_a_photograph_stands_as_its_camera_was_held(turn: Image.Transpose) -> None:
    upright = picture(64, 64)
    exif = Image.Exif()
    exif[ORIENTATION] = {Image.Transpose.ROTATE_90: 6, Image.Transpose.ROTATE_180: 3}[turn]
    content = encoded(upright.transpose(turn), "PNG", exif=exif)

    np.testing.assert_array_equal(decode_image(content, COLOUR), decode_image(encoded(upright, "PNG"), COLOUR))


def test_a_photograph_that_says_wrongly_how_it_was_held_is_read_as_it_is() -> None:
    content = encoded(picture(64, 64), "PNG")
    broken = encoded(picture(64, 64), "PNG", exif=b"Exif\x00\x00MM no more")

    np.testing.assert_array_equal(decode_image(broken, COLOUR), decode_image(content, COLOUR))


@pytest.mark.parametrize("image", [GREY, COLOUR])
def test_shades_of_16_bits_are_those_of_8_finer(image: ImageFormat) -> None:
    shades = np.asarray(picture(64, 48, "L"))
    fine, coarse = (encoded(Image.fromarray(each), "PNG") for each in (shades.astype(np.uint16) * 257, shades))
    step = 1 / 255 / image.deviation[0]

    np.testing.assert_allclose(decode_image(fine, image), decode_image(coarse, image), atol=1.01 * step)


@pytest.mark.parametrize("image", [GREY, COLOUR])
def test_a_large_jpeg_decoded_small_looks_the_same(image: ImageFormat) -> None:
    content = encoded(picture(2000, 1500), "JPEG", quality=95)

    np.testing.assert_allclose(decode_image(content, image), plainly(content, image), atol=0.1)


def test_a_jpeg_decoded_small_is_still_twice_as_large_as_what_the_model_takes() -> None:
    image = ImageFormat(size=224, channels=3, mean=[0.5] * 3, deviation=[0.5] * 3)
    fine = np.random.default_rng(0).integers(0, 256, (1500, 2000, 3), np.uint8)  # or its shapes would hide the size
    content = encoded(Image.fromarray(fine), "JPEG", quality=95)

    assert np.abs(decode_image(content, image) - plainly(content, image)).mean() < 0.008  # by half of that size 0.013


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(kind: str) -> None:
    content = encoded(picture(200, 100), kind)
    assert decode_image(content, GREY, max_pixels=20_000).shape == (1, 28, 28)

    with pytest.raises(ImageError, match="200 × 100 pixels; the limit is 19,999"):
        decode_image(content, GREY, max_pixels=19_999)


def png_header(width: int, height: int) -> bytes:
    """Return the beginning of a PNG of a size."""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", width.to_bytes(4) + height.to_bytes(4) + bytes([8, 0, 0, 0, 0]))


@pytest.mark.parametrize("side", [4001, 10_000, 1_000_000])
def test_a_huge_size_costs_nothing_to_refuse(side: int) -> None:
    content = png_header(side, side) + encoded(picture(8, 8), "PNG")[33:]
    with frozen():
        started = time.thread_time()
        with pytest.raises(ImageError, match="the limit is 16,000,000"):
            decode_image(content, GREY)
        with pytest.raises(ImageError, match="the limit is 16,000,000"):
            image_pixels(content, GREY)

        assert time.thread_time() - started < 0.5


def test_a_thin_image_that_would_grow_a_thousandfold_is_refused() -> None:
    content = io.BytesIO()
    Image.new("L", (2, 6000)).save(content, "PNG")
    image = ImageFormat(size=224, channels=3, mean=[0.5] * 3, deviation=[0.5] * 3, resize=256, keeps_ratio=True)

    tracemalloc.start()
    with pytest.raises(
        ImageError, match="2 × 6000 pixels, and 256 × 768000 as the model takes it; the limit is 16,000,000"
    ):
        decode_image(content.getvalue(), image)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_the_pixels_that_are_made_of_an_image_count_where_they_are_more_than_its_own() -> None:
    kept = ImageFormat(size=224, channels=3, mean=[0.5] * 3, deviation=[0.5] * 3, resize=256, keeps_ratio=True)

    assert image_pixels(encoded(picture(244, 1), "PNG"), kept) == 244 * 256 * 256
    assert image_pixels(encoded(picture(1000, 500), "PNG"), kept) == 1000 * 500
    assert image_pixels(encoded(picture(10, 10), "PNG"), GREY) == 28 * 28


@pytest.mark.parametrize(("kind", "beginning"), [(b"zTXt", b"k\0\0"), (b"iTXt", b"k\0\1\0\0\0"), (b"iCCP", b"k\0\0")])
def test_what_is_compressed_beside_the_pixels_is_not_unpacked(kind: bytes, beginning: bytes) -> None:
    text = chunk(kind, beginning + zlib.compress(bytes(2**20 - 8), 9))
    content = encoded(picture(8, 8), "PNG")
    full = content[:33] + text * 100 + content[33:]

    np.testing.assert_array_equal(
        decode_image(full, GREY), decode_image(content, GREY)
    )  # Pillow unpacks 64 MiB at most
    assert image_pixels(full, GREY) == 28 * 28


def held(text: bytes) -> bytes:
    """Return a PNG whose camera was held as a text in it tells: by EXIF's 6, a quarter to the right."""
    content = encoded(picture(64, 64).transpose(Image.Transpose.ROTATE_90), "PNG")
    return content[:33] + text + content[33:]


EXIF = b"II*\0" + struct.pack("<IHHHIII", 8, 1, ORIENTATION, 3, 1, 6, 0)
PROFILE = b"\nexif\n%8d\n%s\n" % (len(EXIF) + 6, (b"Exif\0\0" + EXIF).hex().encode())
RAW = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(PROFILE))
XMP = chunk(b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="6"/>')


@pytest.mark.parametrize("text", [RAW, XMP])
def test_a_text_of_a_png_may_tell_how_its_camera_was_held(text: bytes) -> None:
    upright = encoded(picture(64, 64), "PNG")

    np.testing.assert_array_equal(decode_image(held(text), COLOUR), decode_image(upright, COLOUR))


@pytest.mark.parametrize(
    "text",
    [
        chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(PROFILE + b"\n" * 2**18)),
        chunk(b"zTXt", b"Raw profile type exif\0\0no more"),
        chunk(b"zTXt", b"Raw profile type exif\0\7" + zlib.compress(PROFILE)),
        chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(bytes(2**21))),
        chunk(b"iCCP", b"\0\0" + zlib.compress(bytes(2**21))),
        chunk(b"iCCP", b"Raw profile type exif\0\0" + zlib.compress(bytes(2**21))),
    ],
)
def test_texts_that_are_too_long_or_broken_are_passed_over(text: bytes) -> None:
    np.testing.assert_array_equal(decode_image(held(text), COLOUR), decode_image(held(b""), COLOUR))


def test_tags_are_not_written_anew_to_turn_a_photograph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some thousands that takes a tenth of a second."""
    written: list[Image.Exif] = []

    def tobytes(exif: Image.Exif, *_: int) -> bytes:
        written.append(exif)
        return b""

    monkeypatch.setattr(Image.Exif, "tobytes", tobytes)
    tags = [(ORIENTATION, 6), *((tag, 1) for tag in range(0x4000, 0x4A00))]
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in tags)
    exif = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    upright = picture(64, 64)
    content = encoded(upright.transpose(Image.Transpose.ROTATE_90), "PNG")
    decoded = decode_image(content[:33] + chunk(b"eXIf", exif) + content[33:], COLOUR)

    np.testing.assert_array_equal(decoded, decode_image(encoded(upright, "PNG"), COLOUR))
    assert not written


def test_a_jpeg_of_many_passes_is_refused() -> None:
    content = encoded(picture(64, 64), "JPEG", progressive=True)
    last = content.rindex(b"\xff\xda")

    content = content[:last] + content[last:-2] * MAX_SCANS + content[-2:]
    for many in (content, with_more_pictures(content)):
        with pytest.raises(ImageError, match=f"more than {MAX_SCANS} scans"):
            decode_image(many, GREY)


def with_more_pictures(content: bytes) -> bytes:
    """Return a JPEG that says, in CIPA's multi-picture format, that another picture is behind the first."""
    pictures = io.BytesIO()
    Image.new("L", (8, 8)).save(pictures, "MPO", save_all=True, append_images=[Image.new("L", (8, 8))])
    start = pictures.getvalue().index(b"\xff\xe2")
    length = int.from_bytes(pictures.getvalue()[start + 2 : start + 4], "big") + 2
    return content[:2] + pictures.getvalue()[start : start + length] + content[2:]


def test_passes_cannot_be_hidden_behind_marks_that_readers_pass_over() -> None:
    content = encoded(picture(64, 64), "JPEG", progressive=True)
    last = content.rindex(b"\xff\xda")
    hidden = b"\xff\x02\xff\xff" + content[last:-2] * MAX_SCANS

    with pytest.raises(ImageError, match=f"more than {MAX_SCANS} scans"):
        decode_image(content[:last] + hidden + content[-2:], GREY)


def test_padding_between_marks_costs_no_more_than_its_length() -> None:
    content = encoded(picture(64, 64), "JPEG")
    with frozen():
        started = time.thread_time()
        decode_image(content[:-2] + b"\xff" * 1_000_000 + content[-2:], GREY)

        assert time.thread_time() - started < 5


def test_what_is_behind_a_photograph_counts_for_nothing() -> None:
    content = encoded(picture(64, 64), "JPEG")
    film = b"\xff\xda\x00\x02" * (MAX_SCANS + 1)

    np.testing.assert_array_equal(decode_image(content + film, GREY), decode_image(content, GREY))
    assert Image.open(io.BytesIO(with_more_pictures(content))).format == "MPO"
    np.testing.assert_array_equal(decode_image(with_more_pictures(content), GREY), decode_image(content, GREY))


def test_of_an_animation_the_first_frame_counts() -> None:
    frames = [picture(60, 40), picture(60, 40).rotate(90)]
    alone, moving = (encoded(frames[0], "GIF", save_all=True, append_images=more) for more in ([], frames[1:] * 30))

    np.testing.assert_array_equal(decode_image(moving, GREY), decode_image(alone, GREY))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_a_file_that_was_cut_off_is_refused(kind: str) -> None:
    content = encoded(picture(200, 100), kind)

    with pytest.raises(ImageError, match="not an image that can be read"):
        decode_image(content[: len(content) // 2], GREY)


@pytest.mark.parametrize("kind", ["TIFF", "ICO", "PPM", "TGA"])
def test_other_kinds_of_files_are_not_even_looked_at(kind: str) -> None:
    with pytest.raises(ImageError, match="PNG, JPEG, GIF, WEBP, BMP can"):
        decode_image(encoded(picture(64, 64), kind), GREY)
