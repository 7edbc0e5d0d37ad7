"""Text Embeddings Inference: its bodies mean what native ones mean, and errors are its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import TEXTS, MakePackage, TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post

LONG = "good film " * 100


@pytest.fixture
async def client(open_client: OpenClient) -> Any:
    async with open_client("embed", "sentiment", "ranker") as client:
        yield client


async def test_vectors_are_the_native_ones(client: Client) -> None:
    native = (await post(client, "/embed", input=TEXTS, dimensions=8))["embeddings"]

    assert await post(client, "/embed", inputs=TEXTS, dimensions=8) == native
    np.testing.assert_allclose(await post(client, "/embed", inputs=TEXTS[0], dimensions=8), native[:1], atol=1e-6)


async def test_token_ids_are_taken_as_they_are(client: Client) -> None:
    (tokens,) = await post(client, "/tokenize", inputs=TEXTS[0])
    ids = [token["id"] for token in tokens]
    native = await post(client, "/embed", input=TEXTS[:1])

    for inputs in (ids, [ids]):
        np.testing.assert_allclose(await post(client, "/embed", inputs=inputs), native["embeddings"], atol=1e-6)


async def test_texts_that_are_too_long_are_cut_unless_that_is_refused(client: Client) -> None:
    (cut,) = (await post(client, "/embed", input=LONG, truncate=True))["embeddings"]
    refused = await client.post("/embed", json={"inputs": LONG, "truncate": False})

    assert await post(client, "/embed", inputs=LONG) == [cut]
    assert refused.status_code == 413
    assert refused.json() == {"error": "inputs has 202 tokens; the limit is 64", "error_type": "Validation"}


async def test_a_body_with_both_fields_is_native(client: Client) -> None:
    assert "embeddings" in await post(client, "/embed", input=TEXTS[0], inputs=["x"])


async def test_a_prompt_is_chosen_by_its_name(open_client: OpenClient, embed: TinyPackage, tmp_path: Path) -> None:
    prompts = {"query": "the dog: "}
    async with open_client(with_manifest(embed, tmp_path / "prompted", embedding={"prompts": prompts})) as client:
        named = await post(client, "/embed", inputs="good", prompt_name="query")
        assert named == await post(client, "/embed", inputs="the dog: good")


async def test_predictions_of_one_input_are_a_list_and_of_several_a_list_for_each(client: Client) -> None:
    results = (await post(client, "/classify", input=[TEXTS[0], [TEXTS[0], TEXTS[1]]]))["results"]
    one, pair = ([{"score": x["score"], "label": x["label"]} for x in result["labels"]] for result in results)

    for inputs, expected in ((TEXTS[0], [one]), (TEXTS[:2], [pair]), ([[TEXTS[0]], TEXTS[:2]], [one, pair])):
        found = await post(client, "/predict", inputs=inputs, model="sentiment")
        for some, others in zip(found if len(expected) == 2 else [found], expected, strict=True):
            assert [pytest.approx(each, abs=1e-6) for each in some] == others


async def test_texts_lose_their_beginnings_where_that_is_asked_for(client: Client) -> None:
    left, text = {"truncation_direction": "Left"}, LONG + TEXTS[0]
    (tokens,) = await post(client, "/tokenize", inputs=text)
    ends = [tokens[0]["id"], *(token["id"] for token in tokens[-63:])]
    vector = (await post(client, "/embed", input=[ends]))["embeddings"]
    native = {"truncate": True, "truncation_side": "left"}

    np.testing.assert_allclose(await post(client, "/embed", inputs=text, **left), vector, atol=1e-6)
    (similar,) = await post(
        client, "/similarity", inputs={"source_sentence": text, "sentences": [text]}, parameters=left
    )
    assert similar == pytest.approx(1)
    (label,) = (await post(client, "/classify", input=text, top_k=1, **native))["results"][0]["labels"]
    assert (await post(client, "/predict", inputs=text, **left))[0] == pytest.approx(label)
    ranked = await post(client, "/rerank", query="dog", documents=[text], activation="sigmoid", **native)
    (found,) = await post(client, "/rerank", query="dog", texts=[text], **left)
    assert found["score"] == pytest.approx(ranked["results"][0]["relevance_score"])
    assert found != (await post(client, "/rerank", query="dog", texts=[text]))[0]


async def test_raw_scores_are_the_models_numbers(client: Client) -> None:
    raw = await post(client, "/predict", inputs=TEXTS[0], raw_scores=True)
    scores = {each["label"]: each["score"] for each in await post(client, "/predict", inputs=TEXTS[0])}

    weights = {each["label"]: np.exp(each["score"]) for each in raw}
    assert {label: weight / sum(weights.values()) for label, weight in weights.items()} == pytest.approx(scores)


async def test_the_score_of_an_only_label_is_made_as_tei_makes_it(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    regression = with_manifest(make_package("ranker"), tmp_path / "one", task="classify", activation="none")
    async with open_client(regression) as client:
        (score,) = await post(client, "/predict", inputs=TEXTS[0])
        (raw,) = await post(client, "/predict", inputs=TEXTS[0], raw_scores=True)

    assert score["score"] == pytest.approx(1 / (1 + np.exp(-raw["score"]))) and score["label"] == raw["label"]


async def test_texts_are_ranked_as_documents_are(client: Client) -> None:
    body = {"query": "the dog", "activation": "none"}
    native = (await post(client, "/rerank", documents=TEXTS, **body))["results"]
    ranks = await post(client, "/rerank", query="the dog", texts=TEXTS, raw_scores=True, return_text=True)

    assert [(rank["index"], rank["score"]) for rank in ranks] == [(x["index"], x["relevance_score"]) for x in native]
    assert [rank["text"] for rank in ranks] == [TEXTS[rank["index"]] for rank in ranks]
    assert "text" not in (await post(client, "/rerank", query="the dog", texts=TEXTS))[0]


async def test_the_scores_of_an_embedding_model_are_its_cosines_raw_or_not(open_client: OpenClient) -> None:
    async with open_client("embed") as client:
        native = (await post(client, "/rerank", query="the dog", documents=TEXTS))["results"]
        ranks = [await post(client, "/rerank", query="the dog", texts=TEXTS, raw_scores=raw) for raw in (True, False)]
        similar = await post(client, "/similarity", inputs={"source_sentence": "the dog", "sentences": TEXTS})
        refused = await client.post("/rerank", json={"query": "the dog", "texts": ["red", LONG], "truncate": False})

    expected = [{"index": each["index"], "score": each["relevance_score"]} for each in native]
    assert ranks == [expected, expected]
    assert {rank["index"]: rank["score"] for rank in ranks[0]} == pytest.approx(dict(enumerate(similar)))
    assert refused.json() == {
        "error": "texts has 202 tokens in text 2 of 2; the limit is 64",
        "error_type": "Validation",
    }


async def test_similarities_are_the_cosines_of_the_vectors(client: Client) -> None:
    first, *others = np.array((await post(client, "/embed", input=TEXTS))["embeddings"])
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    similar = await post(client, "/similarity", inputs=sentences, parameters={"truncate": True})

    np.testing.assert_allclose(similar, [first @ other for other in others], atol=1e-6)


async def test_no_text_is_more_like_another_than_like_itself(client: Client) -> None:
    texts = ["Hello there", "How is bread made?", *TEXTS, "the red dog", "a good film"]
    for text in texts:
        (similar,) = await post(client, "/similarity", inputs={"source_sentence": text, "sentences": [text]})
        assert similar == 1.0


async def test_tokens_know_their_text_and_special_ones_have_no_place(client: Client) -> None:
    (tokens,) = await post(client, "/tokenize", inputs=TEXTS[1])
    (plain,) = await post(client, "/tokenize", inputs=[TEXTS[1]], add_special_tokens=False)
    ids = [token["id"] for token in tokens]

    assert [token["special"] for token in tokens] == [True, *[False] * len(plain), True]
    assert tokens[0] == {"id": ids[0], "text": "[CLS]", "special": True, "start": None, "stop": None}
    assert tokens[1:-1] == plain
    assert all(token["text"] == TEXTS[1][token["start"] : token["stop"]] for token in plain)
    (text,) = await post(client, "/decode", ids=ids)
    (whole,) = await post(client, "/decode", ids=[ids], skip_special_tokens=False)
    assert "[CLS]" in whole and "[CLS]" not in text and text in whole


async def test_a_model_is_described_as_tei_does(client: Client) -> None:
    embedding, classifier, ranker = [
        (await client.get("/info", params=params)).json()
        for params in ({}, {"model": "sentiment"}, {"model": "ranker"})
    ]

    assert embedding["model_id"] == "embed" and "pooling" in embedding["model_type"]["embedding"]
    assert (embedding["max_input_length"], embedding["max_client_batch_size"]) == (64, 256)
    assert classifier["model_type"]["classifier"]["id2label"] == {"0": "negative", "1": "positive"}
    assert ranker["model_type"]["reranker"]["label2id"] == {"fits": 0}


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "words"),
    [
        ("/embed", {"inputs": []}, 400, "Empty", "inputs is empty"),
        ("/embed", {"inputs": ["x"] * 257}, 413, "Validation", "the limit is 256"),
        ("/embed", {"inputs": [["x"]]}, 422, "Validation", "inputs.0.0: Input should be a valid integer"),
        ("/embed", {"inputs": "x", "dimensions": 99}, 413, "Validation", "the limit is 32"),
        ("/embed", {"inputs": "x", "prompt_name": "query"}, 413, "Validation", "this model has none"),
        ("/embed", {"inputs": "x", "truncation_direction": "up"}, 422, "Validation", "truncation_direction"),
        ("/embed", {"inputs": "x", "prompt": "query: "}, 422, "Validation", "prompt: this is not done here"),
        ("/embed", {"inputs": "x", "model": "sentiment"}, 424, "Backend", "not for embed"),
        ("/predict", {"inputs": "x", "model": "embed"}, 424, "Backend", "not for classify"),
        ("/rerank", {"query": "x", "texts": ["y"], "model": "sentiment"}, 424, "Backend", "not for rerank"),
        ("/predict", {"inputs": []}, 400, "Empty", "inputs"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "Validation", "inputs"),
        ("/predict", {"inputs": [["a"], ["a", "b", "c"]]}, 422, "Validation", "inputs"),
        ("/rerank", {"query": "x", "texts": []}, 400, "Empty", "texts is empty"),
        ("/similarity", {"inputs": {"source_sentence": "x"}}, 422, "Validation", "inputs"),
        ("/similarity", {"inputs": {"source_sentence": "x", "sentences": []}}, 400, "Empty", "sentences is empty"),
        ("/tokenize", {"inputs": []}, 400, "Empty", "inputs is empty"),
        ("/tokenize", {"inputs": "x", "prompt_name": "query"}, 422, "Validation", "prompt_name"),
        ("/decode", {"ids": [9999]}, 413, "Validation", "ids go from 0"),
        ("/embed_all", {"inputs": "x"}, 424, "Backend", "no vectors of single tokens"),
        ("/embed_sparse", {"inputs": "x"}, 424, "Backend", "there is no model for embed_sparse here"),
        ("/embed_sparse", {"inputs": "x", "model": "nobody"}, 404, "Validation", "there is no model 'nobody'"),
    ],
)
async def test_errors_have_teis_form_types_and_statuses(
    client: Client, path: str, body: dict[str, Any], status: int, kind: str, words: str
) -> None:
    response = await client.post(path, json=body)

    assert (response.status_code, response.json()["error_type"]) == (status, kind), response.text
    assert response.json().keys() == {"error", "error_type"} and words in response.json()["error"]


async def test_errors_of_native_bodies_on_shared_paths_stay_native(client: Client) -> None:
    for path, body in (("/embed", {}), ("/embed", []), ("/rerank", {"query": "x"}), ("/tokenize", {"input": 1})):
        response = await client.post(path, json=body)
        assert response.status_code == 422 and response.json()["error"]["code"] == "invalid_request", path


async def test_without_a_model_that_embeds_the_answer_is_teis(open_client: OpenClient) -> None:
    async with open_client("stories") as client:
        response = await client.post("/similarity", json={"inputs": {"source_sentence": "x", "sentences": ["y"]}})
        described = await client.get("/info")

    assert [(x.status_code, x.json()["error_type"]) for x in (response, described)] == [(424, "Backend")] * 2
