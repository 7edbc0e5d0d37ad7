from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine.arrays import Array
from service.tasks.embed import normalized
from tests.conftest import TEXTS, TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post

PROMPTS = {"query": "the dog: ", "passage": "the film: "}


async def vectors(client: Client, **body: Any) -> Array:
    return np.array((await post(client, "/embed", **body))["embeddings"])


async def test_fewer_dimensions_are_the_first_ones_and_1_long_again(open_client: OpenClient) -> None:
    async with open_client("embed") as client:
        whole = await vectors(client, input=TEXTS)
        cut = await vectors(client, input=TEXTS, dimensions=8)
        raw = await vectors(client, input=TEXTS, dimensions=8, normalize=False)

    np.testing.assert_allclose(raw, whole[:, :8], atol=1e-6)
    np.testing.assert_allclose(cut, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), 1, atol=1e-6)
    assert cut.shape == (3, 8) and not np.allclose(np.linalg.norm(raw, axis=1), 1, atol=1e-2)


async def test_a_prompt_goes_before_each_text_by_name_by_default_or_in_words(
    open_client: OpenClient, embed: TinyPackage, tmp_path: Path
) -> None:
    embedding = {"prompts": PROMPTS, "default_prompt": "passage"}
    async with open_client(with_manifest(embed, tmp_path / "prompted", embedding=embedding)) as client:
        plain = await vectors(client, input=[PROMPTS["query"] + TEXTS[0], PROMPTS["passage"] + TEXTS[0]], prompt="")
        by_name = await vectors(client, input=TEXTS[0], prompt_name="query")
        by_default = await vectors(client, input=TEXTS[0])
        in_words = await vectors(client, input=TEXTS[0], prompt=PROMPTS["query"])
        card = (await client.get("/v1/models")).json()["data"][0]

    np.testing.assert_allclose([by_name[0], by_default[0], in_words[0]], plain[[0, 1, 0]], atol=1e-6)
    assert card["embedding"]["prompts"] == PROMPTS and card["embedding"]["default_prompt"] == "passage"


async def test_a_package_may_leave_vectors_as_long_as_they_are(
    open_client: OpenClient, embed: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.batcher.Batcher._compute", lambda *_: [np.full(32, 2, np.float32)])
    async with open_client(with_manifest(embed, tmp_path / "raw", embedding={"normalize": False})) as client:
        raw = await vectors(client, input="good")
        unit = await vectors(client, input="good", normalize=True)

    np.testing.assert_array_equal(raw, np.full((1, 32), 2))
    np.testing.assert_allclose(np.linalg.norm(unit), 1, atol=1e-6)


async def test_only_dimensions_that_a_model_was_trained_for_are_given(
    open_client: OpenClient, embed: TinyPackage, tmp_path: Path
) -> None:
    async with open_client(with_manifest(embed, tmp_path / "doll", embedding={"matryoshka": [8, 16]})) as client:
        for dimensions in (8, 16, 32):
            assert (await vectors(client, input="good", dimensions=dimensions)).shape == (1, dimensions)
        refused = await client.post("/embed", json={"input": "good", "dimensions": 12})

    assert refused.status_code == 422 and refused.json()["error"]["param"] == "dimensions"
    assert "8, 16, 32" in refused.json()["error"]["message"]


async def test_ids_that_are_too_many_keep_their_end(client: Client) -> None:
    ids = [2, *([40, 41, 42] * 30), 3]
    cut = await vectors(client, input=[ids], truncate=True)

    np.testing.assert_allclose(cut, await vectors(client, input=[[*ids[:63], 3]]), atol=1e-6)


async def test_the_vector_of_a_long_text_is_the_mean_of_its_windows(open_client: OpenClient) -> None:
    words = " ".join(TEXTS * 2).split()
    halves = [" ".join(words[:20]), " ".join(words[20:])]
    async with open_client("embed") as client:
        tokens = [(await post(client, "/embed", input=half, windows=True))["usage"]["prompt_tokens"] for half in halves]
        long = await vectors(client, input=" ".join(words), windows=True, normalize=False)
        one = await vectors(client, input=halves[0], normalize=False)
        same = await vectors(client, input=halves[0], windows=True, normalize=False)
        prompted = await post(client, "/embed", input=" ".join(words), windows=True, prompt="the dog: ")
        plain = await post(client, "/embed", input=" ".join(words), windows=True)

    np.testing.assert_allclose(same, one, atol=1e-6)  # one window
    assert sum(tokens) > 64 and 0 < np.linalg.norm(long) < 1
    assert prompted["usage"]["prompt_tokens"] >= plain["usage"]["prompt_tokens"] + 2 * 3  # in every window


def test_a_vector_of_length_0_stays() -> None:
    np.testing.assert_array_equal(
        normalized(np.array([[0.0, 0.0], [3.0, 4.0]])), np.array([[0, 0], [0.6, 0.8]], np.float32)
    )
