"""Documents ranked by embedding models: by the cosines of the vectors that `/embed` gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import SimilarityFunction

from service.engine.arrays import Array
from tests.conftest import TEXTS, MakePackage, TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, limits, post

QUERY = "the dog"
DOCUMENTS = [*TEXTS, "a red ball", "ice cream"]
LONG = "good film " * 100
PROMPTS = {
    "query": "the dog: ",
    "document": "a red ball. ",
    "passage": "the film: ",
    "corpus": "so good. ",
    "sts": "x ",
}


async def vectors(client: Client, texts: Sequence[str], **how: Any) -> Array:
    return np.array((await post(client, "/embed", input=list(texts), **how))["embeddings"])


async def scores(client: Client, **body: Any) -> Array:
    """Return the documents' scores in the order in which they were sent."""
    found = (await post(client, "/rerank", **body))["results"]
    by_place = {result["index"]: result["relevance_score"] for result in found}
    return np.array([by_place[place] for place in range(len(found))])


def cosines(query: Array, documents: Array) -> Array:
    lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(query)
    return np.asarray(documents @ query / lengths)


async def test_the_score_of_a_document_is_the_cosine_of_its_vector_with_the_querys(open_client: OpenClient) -> None:
    async with open_client("embed") as client:
        query, *documents = await vectors(client, [QUERY, *DOCUMENTS])
        given = [{"text": DOCUMENTS[0]}, *DOCUMENTS[1:]]
        answer = await post(client, "/rerank", query=QUERY, documents=given)
        best = await post(
            client, "/rerank", query=QUERY, documents=given, top_n=2, return_documents=True, activation="none"
        )

    expected = cosines(query, np.array(documents))
    found = [(result["index"], result["relevance_score"]) for result in answer["results"]]
    assert [index for index, _ in found] == np.argsort(-expected).tolist()
    assert [score for _, score in found] == pytest.approx(np.sort(expected)[::-1], abs=1e-6)
    assert [(each["index"], each["relevance_score"]) for each in best["results"]] == found[:2]
    assert [each["document"]["text"] for each in best["results"]] == [DOCUMENTS[index] for index, _ in found[:2]]
    assert answer["model"] == "embed" and "document" not in answer["results"][0]


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
@pytest.mark.parametrize("normalize", [False, True])
async def test_documents_are_compared_as_the_library_does_by_what_the_model_says(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path, similarity: str, *, normalize: bool
) -> None:
    package = with_manifest(
        make_package("pooled"), tmp_path / "other", embedding={"normalize": normalize, "similarity": similarity}
    )
    async with open_client(package) as client:
        query, *documents = await vectors(client, [QUERY, *DOCUMENTS])
        found = await scores(client, query=QUERY, documents=DOCUMENTS)

    expected = SimilarityFunction.to_similarity_fn(similarity)(query, np.array(documents))
    assert found == pytest.approx(np.asarray(expected)[0], rel=1e-4, abs=1e-5)


async def test_the_query_is_read_and_counted_once(open_client: OpenClient, encoded: list[str]) -> None:
    async with open_client("embed") as client:
        tokens = (await post(client, "/embed", input=[QUERY, *DOCUMENTS]))["usage"]
        encoded.clear()
        answer = await post(client, "/rerank", query=QUERY, documents=DOCUMENTS)

    assert answer["usage"] == tokens and encoded == [QUERY, *DOCUMENTS]


def chosen_by_the_library(prompts: dict[str, str]) -> tuple[str, str]:
    """Return the prompts of a query and of a document, as sentence-transformers chooses among those of a model."""
    model: Any = SimpleNamespace(prompts=prompts, encode=lambda **given: prompts.get(given["prompt_name"], ""))
    query: Any = SentenceTransformer.encode_query(model, "x")
    document: Any = SentenceTransformer.encode_document(model, "x")
    return query, document


@pytest.mark.parametrize(
    "names", [["query", "document"], ["corpus", "passage", "query"], ["corpus"], ["query"], ["document"], ["sts"]]
)
async def test_queries_and_documents_have_the_prompts_that_are_named_for_them(
    open_client: OpenClient, embed: TinyPackage, tmp_path: Path, names: list[str]
) -> None:
    prompts = {name: PROMPTS[name] for name in names}
    before_query, before_document = chosen_by_the_library(prompts)
    async with open_client(with_manifest(embed, tmp_path / "prompted", embedding={"prompts": prompts})) as client:
        (query,) = await vectors(client, [QUERY], prompt=before_query)
        documents = await vectors(client, DOCUMENTS, prompt=before_document)
        found = await scores(client, query=QUERY, documents=DOCUMENTS)

    assert found == pytest.approx(cosines(query, documents), abs=1e-6)


async def test_what_has_no_prompt_named_for_it_has_the_default_one_as_in_embed(
    open_client: OpenClient, embed: TinyPackage, tmp_path: Path
) -> None:
    embedding = {"prompts": {"query": PROMPTS["query"], "sts": PROMPTS["sts"]}, "default_prompt": "sts"}
    async with open_client(with_manifest(embed, tmp_path / "prompted", embedding=embedding)) as client:
        (query,) = await vectors(client, [QUERY], prompt_name="query")
        documents = await vectors(client, DOCUMENTS)
        found = await scores(client, query=QUERY, documents=DOCUMENTS)

    assert found == pytest.approx(cosines(query, documents), abs=1e-6)


async def test_vectors_of_any_length_have_cosines_even_of_length_0(
    open_client: OpenClient, embed: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = {3: 3, 4: 30, 5: 0, 6: -0.5}  # of the vectors of so many tokens, two of which are special
    package = with_manifest(embed, tmp_path / "raw", embedding={"normalize": False})
    async with open_client(package) as client:
        row = np.linspace(0.1, 1, 32, dtype=np.float32)
        monkeypatch.setattr(
            "service.engine.batcher.Batcher._compute", lambda _, batch: [row * lengths[item.tokens] for item in batch]
        )
        found = await scores(client, query="red", documents=["red dog", "red dog red", "red dog red dog"])

        itself = await scores(client, query="red dog", documents=["red dog"])

    assert itself.tolist() == [1]
    assert found.tolist() == pytest.approx([1, 0, -1]) and np.abs(found).max() <= 1


async def test_a_score_is_the_same_to_the_last_bit_in_any_company(
    open_client: OpenClient, make_package: MakePackage
) -> None:
    async with open_client(make_package("embed", "int8").folder) as client:
        together = await scores(client, query=QUERY, documents=DOCUMENTS * 7)
        alone = [(await scores(client, query=QUERY, documents=[document])).item() for document in DOCUMENTS]

    assert together.tolist() == alone * 7


async def test_texts_that_are_too_long_are_cut_each_alone_as_embed_cuts_them(open_client: OpenClient) -> None:
    async with open_client("embed") as client:
        query, *documents = await vectors(client, [LONG + QUERY, LONG, "x" * 5000, QUERY], truncate=True)
        found = await scores(client, query=LONG + QUERY, documents=[LONG, "x" * 5000, QUERY], truncate=True)

    assert found == pytest.approx(cosines(query, np.array(documents)), abs=1e-6)


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"query": LONG}, 422, "query", "query has 202 tokens; the limit is 64"),
        ({"query": "x" * 5000}, 422, "query", "64 tokens, or 4096"),
        ({"documents": [QUERY, LONG]}, 422, "documents", "documents has 202 tokens in text 2 of 2; the limit is 64"),
        ({"documents": [{"text": "x" * 5000}]}, 422, "documents", "64 tokens, or 4096"),
        ({"documents": []}, 422, "documents", "at least one"),
        ({"documents": ["x"] * 5}, 413, "documents", "the limit is 4"),
        ({"documents": ["x"] * 4}, 413, "documents", "comes to 5 texts to read; the limit is 4"),  # with the query
        ({"activation": "sigmoid"}, 422, "activation", "'embed' ranks by vectors, whose likeness"),
        ({"activation": "softmax"}, 422, "activation", "leave it out, or send none"),
        ({"top_n": 0}, 422, "top_n", "greater than or equal to 1"),
    ],
)
async def test_bad_requests_name_the_field_and_the_limit(
    open_client: OpenClient, body: dict[str, Any], status: int, param: str, words: str
) -> None:
    async with open_client("embed", settings=limits(max_inputs=4, max_rows=4)) as client:
        response = await client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS[:3], **body})

    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["param"] == param and words in error["message"], error


async def test_a_cross_encoder_answers_before_an_embedding_model_unless_one_is_named(open_client: OpenClient) -> None:
    body = {"query": QUERY, "documents": DOCUMENTS}
    async with open_client("embed", "ranker") as client:
        assert (await post(client, "/rerank", **body))["model"] == "ranker"
        assert (await post(client, "/rerank", **body, model="embed"))["model"] == "embed"
        cards = {card["id"]: card for card in (await client.get("/v1/models")).json()["data"]}
        refused = await client.post("/classify", json={"model": "embed", "input": "good"})

    assert cards["embed"]["tasks"] == ["embed", "rerank"] and cards["embed"]["decisions"] is None
    assert refused.json()["error"]["message"] == "model 'embed' is for embed and rerank, not for classify"
