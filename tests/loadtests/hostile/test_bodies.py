from __future__ import annotations

import base64
import io
import json

import pytest
from PIL import Image

from loadtests.hostile.attacks import LONG_STREAM
from loadtests.hostile.bodies import BODY_LIMIT, Body, bodies
from loadtests.hostile.wire import Address
from service.schemas import GenerateRequest
from service.tasks.decoding_defaults import MAX_LOGPROBS

BODIES = {body.name: body for body in bodies()}
BROKEN = {"2 MB, nested lists", "broken JSON", "broken UTF-8", "chunks of no size"}


def fields(name: str) -> dict[str, object]:
    content: dict[str, object] = json.loads(BODIES[name].content)
    return content


def test_every_kind_has_a_name_of_its_own() -> None:
    assert len(BODIES) == len(bodies())


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies_are_within_the_limit_but_for_the_one_that_is_not(body: Body) -> None:
    assert (len(body.content) > BODY_LIMIT) == (body.name == "more than 2 MB")


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies_are_json_that_names_its_model_but_for_those_that_are_broken(body: Body) -> None:
    if body.name in BROKEN:
        with pytest.raises((ValueError, RecursionError)):
            json.loads(body.content)
    elif body.name != "odd model name":
        assert json.loads(body.content)["model"] == body.model


@pytest.mark.parametrize(("name", "count"), [("sentences, 100 kB", 25_000), ("sentences, 2 MB", 500_000)])
def test_a_sentence_bomb_is_many_short_sentences(name: str, count: int) -> None:
    assert str(fields(name)["input"]).count("! ") == count


@pytest.mark.parametrize(
    ("name", "count", "megapixels", "kind"),
    [
        ("images, 49 MP PNG, 200", 200, 49, "PNG"),
        ("images, 49 MP WebP, 200", 200, 49, "WEBP"),
        ("images, 16 MP PNG, 4", 4, 16, "PNG"),
        ("images, 16 MP PNG, 8", 8, 16, "PNG"),
    ],
)
def test_an_image_bomb_is_a_few_kilobytes_of_many_megapixels(name: str, count: int, megapixels: int, kind: str) -> None:
    images = fields(name)["input"]
    assert isinstance(images, list) and len(images) == count
    content = base64.b64decode(images[0])
    with Image.open(io.BytesIO(content)) as image:
        assert (image.width * image.height, image.format) == (megapixels * 1_000_000, kind)
    assert len(content) < 10_000


def test_wide_requests_ask_for_as_much_as_they_say() -> None:
    assert fields("64 beams, generate")["beam_size"] == fields("64 beams, translate")["beam_size"] == 64
    bias = fields("300 biases")["logit_bias"]
    assert isinstance(bias, dict) and len(bias) == 300
    assert (fields("logprobs 20, n 32")["logprobs"], fields("logprobs 20, n 32")["n"]) == (20, 32)
    assert fields("echo with logprobs")["echo"] is True


def test_requests_for_log_probabilities_are_within_their_limit_so_that_they_run() -> None:
    requests = [fields("logprobs 20, n 32"), fields("echo with logprobs"), json.loads(LONG_STREAM.body)]
    for request in map(GenerateRequest.model_validate, requests):
        assert request.logprobs is not None and request.max_tokens is not None
        tokens = request.max_tokens + request.echo * 511  # no more than `stories` has positions
        assert MAX_LOGPROBS / 4 < tokens * request.n * (1 + request.logprobs) <= MAX_LOGPROBS


def test_windows_labels_and_conversations_are_as_many_as_they_say() -> None:
    assert fields("2 MB in windows")["windows"] is True
    for name, field, count in (
        ("250 labels", "labels", 250),
        ("100,000 labels", "labels", 100_000),
        ("30 messages", "messages", 30),
        ("35,000 messages", "messages", 35_000),
        ("100 deep tools", "tools", 100),
    ):
        given = fields(name)[field]
        assert isinstance(given, list) and len(given) == count


@pytest.mark.parametrize("name", [name for name in BODIES if name.startswith("2 MB")])
def test_large_bodies_are_nearly_as_large_as_they_may_be(name: str) -> None:
    assert 1_700_000 < len(BODIES[name].content) <= BODY_LIMIT


def test_broken_utf_8_is_broken() -> None:
    with pytest.raises(UnicodeDecodeError):
        BODIES["broken UTF-8"].content.decode()


def test_contradicting_headers_are_sent_beside_the_usual_ones() -> None:
    head = BODIES["two lengths"].request(is_direct=True).head(Address("127.0.0.1", 1), None).decode()

    assert head.count("Content-Length: ") == 2
    assert len(BODIES["header of 30 kB"].request(is_direct=False).head(Address("127.0.0.1", 1), None)) > 30_000
