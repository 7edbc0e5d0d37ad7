"""Packages whose manifest says that texts which are too long lose their beginnings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from service.tasks.texts import MAX_CHARACTERS_PER_TOKEN, truncated
from tests.conftest import MakePackage, with_manifest
from tests.service.api.conftest import OpenClient, post
from tests.service.api.test_text_to_text import BART

LONG = ["red", "dog", "good"] * 30  # words of one token each, more than the 64 that the models take


@pytest.fixture
def left(make_package: MakePackage, tmp_path: Path) -> Callable[..., Path]:
    """Return a factory of copies of packages that cut on the left."""
    return lambda name, **fields: with_manifest(make_package(name), tmp_path / name, truncation_side="left", **fields)


async def test_a_text_keeps_its_end(open_client: OpenClient, left: Callable[..., Path]) -> None:
    async with open_client(left("sentiment")) as client:
        cut = await post(client, "/classify", input=" ".join(LONG), truncate=True)
        whole = await post(client, "/classify", input=" ".join(LONG[-62:]))

    assert cut == whole and cut["usage"]["prompt_tokens"] == 64


async def test_so_does_one_of_too_many_characters(open_client: OpenClient, left: Callable[..., Path]) -> None:
    beginning = "a " * 64 * MAX_CHARACTERS_PER_TOKEN
    async with open_client(left("sentiment")) as client:
        cut = await post(client, "/classify", input=beginning + " ".join(LONG), truncate=True)
        whole = await post(client, "/classify", input=" ".join(LONG[-62:]))

    assert cut == whole


async def test_a_text_behind_pages_of_white_space_is_read(open_client: OpenClient) -> None:
    pages = " \n" * 64 * MAX_CHARACTERS_PER_TOKEN
    async with open_client("sentiment") as client:
        cut = await post(client, "/classify", input=pages + " ".join(LONG), truncate=True)
        whole = await post(client, "/classify", input=" ".join(LONG[:62]))

    assert cut == whole


async def test_so_does_the_text_beside_labels(open_client: OpenClient, left: Callable[..., Path]) -> None:
    async with open_client(left("entailment")) as client:
        cut = await post(client, "/classify", input=" ".join(LONG), labels=["red"], truncate=True)
        room = 64 - (await post(client, "/classify", input="", labels=["red"]))["usage"]["prompt_tokens"]
        whole = await post(client, "/classify", input=" ".join(LONG[-room:]), labels=["red"])

    assert cut == whole


async def test_so_does_the_longer_text_of_a_pair(open_client: OpenClient, left: Callable[..., Path]) -> None:
    async with open_client(left("ranker")) as client:
        cut = await post(client, "/rerank", query="red dog", documents=[" ".join(LONG)], truncate=True)
        whole = await post(client, "/rerank", query="red dog", documents=[" ".join(LONG[-59:])])

    assert cut == whole and cut["usage"]["prompt_tokens"] == 64


async def test_a_request_may_say_otherwise(open_client: OpenClient, left: Callable[..., Path]) -> None:
    text = " ".join(LONG)
    async with open_client(left("embed")) as client:
        beginning = (await post(client, "/embed", input=" ".join(LONG[:62])))["embeddings"]
        asked = {"truncate": True, "truncation_side": "right"}
        native = (await post(client, "/embed", input=text, **asked))["embeddings"]
        (openai,) = (await post(client, "/v1/embeddings", input=text, **asked))["data"]
        tei = await post(client, "/embed", inputs=text, truncation_direction="Right")
        as_stated = await post(client, "/embed", inputs=text)

    for vectors in (native, [openai["embedding"]], tei):
        np.testing.assert_allclose(vectors, beginning, atol=1e-6)
    assert not np.allclose(as_stated, beginning, atol=1e-6)


async def test_so_do_the_ids_of_a_text_with_what_begins_it(open_client: OpenClient, left: Callable[..., Path]) -> None:
    ids = [2, *([40, 41, 42] * 30), 3]
    async with open_client(left("embed")) as client:
        cut, begun, bare, end = [
            (await post(client, "/embed", input=[row], truncate=True))["embeddings"]
            for row in (ids, [2, *ids[-63:]], ids[1:], ids[-64:])
        ]

    np.testing.assert_allclose(cut, begun, atol=1e-6)
    np.testing.assert_allclose(bare, end, atol=1e-6)


async def test_so_does_what_is_turned_into_another_text(open_client: OpenClient, left: Callable[..., Path]) -> None:
    async with open_client(left("translate", **BART)) as client:
        cut = await post(client, "/generate", prompt=" ".join(LONG), truncate=True)
        end = await post(client, "/generate", prompt=" ".join(LONG[1:]), truncate=True)
        beginning = await post(client, "/generate", prompt=" ".join(LONG[:-1]), truncate=True)

    assert cut == end and cut["usage"]["prompt_tokens"] == 64
    assert cut["choices"] != beginning["choices"]


async def test_what_stands_before_a_text_stays(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    asked, text = {"truncate": True, "truncation_side": "left"}, " ".join(LONG)
    prompted = with_manifest(
        make_package("embed"),
        tmp_path / "prompted",
        embedding={"prompts": {"query": "the dog ", "document": "a ball "}},
    )
    async with open_client(prompted) as client:
        embedded = await post(client, "/embed", input=text, prompt="the dog ", **asked)
        room = 62 - ((await post(client, "/embed", input="the dog"))["usage"]["prompt_tokens"] - 2)
        whole = await post(client, "/embed", input="the dog " + " ".join(LONG[-room:]))
        query = {"query": text, "documents": ["red", text], **asked}
        ranked = await post(client, "/rerank", **query)
        in_words = [
            await post(client, "/embed", input=each, prompt=before, truncate=True, truncation_side="left")
            for before, each in (("the dog ", text), ("a ball ", "red"), ("a ball ", text))
        ]

    np.testing.assert_allclose(embedded["embeddings"], whole["embeddings"], atol=1e-6)
    assert embedded["usage"]["prompt_tokens"] == 64
    first, *others = np.array([each["embeddings"][0] for each in in_words])
    scores = {each["index"]: each["relevance_score"] for each in ranked["results"]}
    np.testing.assert_allclose([scores[0], scores[1]], [first @ other for other in others], atol=1e-6)


async def test_a_prompt_that_is_too_long_itself_is_all_that_is_read(open_client: OpenClient) -> None:
    asked = {"truncate": True, "truncation_side": "left"}
    async with open_client("embed") as client:
        cut = await post(client, "/embed", input="good film", prompt=" ".join(LONG), **asked)
        beginning = await post(client, "/embed", input=" ".join(LONG[:62]))

    np.testing.assert_allclose(cut["embeddings"], beginning["embeddings"], atol=1e-6)


async def test_the_masks_that_are_left_are_those_at_the_end(open_client: OpenClient, left: Callable[..., Path]) -> None:
    text = "[MASK] dog " * 40
    async with open_client(left("encoder")) as client:
        answer = await post(client, "/fill", input=text, truncate=True, top_k=1)

    assert [mask["start"] for mask in answer["results"][0]] == [place * len("[MASK] dog ") for place in range(9, 40)]


def test_ids_are_cut_where_there_are_too_many() -> None:
    ids = [0, 1, 2, 3, 4]

    assert truncated(ids, 5, "left") == ids
    assert truncated(ids, 3, "left") == [2, 3, 4]
    assert truncated(ids, 3, "left", is_begun=True) == [0, 3, 4]
    assert truncated(ids, 3) == [0, 1, 4]
