from __future__ import annotations

import base64
import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from model.package.images import decode_image
from model.training.cards import FASHION_IMAGES
from tests.service.api.conftest import OpenClient, post


def png(size: tuple[int, int] = (28, 28), mode: str = "L") -> bytes:
    pixels = np.random.default_rng(size[0]).integers(0, 256, (size[1], size[0]), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(content, "PNG")
    return content.getvalue()


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def test_images_are_classified_one_by_one_and_together(open_client: OpenClient) -> None:
    images = [encoded(png()), f"data:image/png;base64,{encoded(png((40, 30), 'RGB'))}"]
    async with open_client("fashion") as client:
        together = await post(client, "/classify", input=images, top_k=2)
        alone = [(await post(client, "/classify", input=image, top_k=2))["results"][0] for image in images]

    assert together["results"] == alone
    assert together["usage"]["prompt_tokens"] == 2 * 17  # CLS and sixteen patches each


@pytest.mark.parametrize(
    "written", [base64.encodebytes, base64.urlsafe_b64encode, lambda content: base64.b64encode(content).rstrip(b"=")]
)
async def test_base64_comes_in_lines_for_addresses_or_without_its_end(
    open_client: OpenClient, written: Callable[[bytes], bytes]
) -> None:
    content = png((40, 30), "RGB")
    async with open_client("fashion") as client:
        usual = await post(client, "/classify", input=encoded(content))
        other = await post(client, "/classify", input=written(content).decode())

    assert other == usual


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("not base64!", "not base64"),
        ("été", "not base64"),
        (encoded(b"hello"), "not an image"),
        (encoded(png()[:60]), "not an image"),
        ([["a", "b"]], "one image at a time"),
        (encoded(png((8000, 7000))), "8000 × 7000 pixels; the limit is 16,000,000"),
    ],
)
async def test_what_is_no_image_is_refused_by_name(open_client: OpenClient, given: object, message: str) -> None:
    async with open_client("fashion", settings={"limits": {"max_body_bytes": 100_000_000}}) as client:
        response = await client.post("/classify", json={"input": given})

    assert response.status_code == 422
    assert response.json()["error"]["param"] == "input"
    assert message in response.json()["error"]["message"]


async def test_the_images_of_a_request_share_the_bound_of_pixels(open_client: OpenClient) -> None:
    largest = encoded(png((40, 25)))  # as many pixels as an image may have here
    async with open_client("fashion", max_image_pixels=1000) as client:
        four = await client.post("/classify", json={"input": [largest] * 4})
        five = await client.post("/classify", json={"input": [largest] * 5})

    assert four.status_code == 200, four.text
    assert five.status_code == 413 and "more than 4,000 pixels" in five.json()["error"]["message"]


@pytest.mark.parametrize("field", ["multi_label", "windows"])
async def test_what_is_for_texts_is_refused_of_images(open_client: OpenClient, field: str) -> None:
    async with open_client("fashion") as client:
        answer = await client.post("/classify", json={"input": encoded(png()), field: True})

    assert answer.status_code == 422 and answer.json()["error"]["param"] == field


async def test_a_model_of_images_has_no_tokens(open_client: OpenClient) -> None:
    async with open_client("fashion") as client:
        response = await client.post("/tokenize", json={"input": "a shirt"})

    assert response.status_code == 422
    assert "takes images" in response.json()["error"]["message"]


def test_grey_of_sixteen_bits_keeps_its_shades() -> None:
    ramp = np.linspace(0, 65535, 28 * 28).astype(np.uint16).reshape(28, 28)
    content = io.BytesIO()
    Image.fromarray(ramp).save(content, "PNG")
    pixels = decode_image(content.getvalue(), FASHION_IMAGES)[0]

    expected = (ramp / 65535 - 0.286) / 0.353
    np.testing.assert_allclose(pixels, expected, atol=0.02)
