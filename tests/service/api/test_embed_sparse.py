from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.util import SimilarityFunction

from model.package.files import sha256_of
from model.package.manifest import TOKENIZER_FILE
from service.engine.arrays import Array
from service.engine.batcher import _Lane
from service.tasks import texts
from service.tasks.embed_sparse import ROWS_AT_ONCE
from tests.conftest import TEXTS, MakePackage, TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post

run = _Lane.run


@pytest.fixture
def sparse(make_package: MakePackage) -> TinyPackage:
    """An encoder whose vectors are sparse."""
    return make_package("sparse")


async def vectors(client: Client, **body: Any) -> list[dict[int, float]]:
    """Return the words of each text and what they weigh."""
    found = (await post(client, "/embed_sparse", **body))["embeddings"]
    return [dict(zip(each["indices"], each["values"], strict=True)) for each in found]


async def test_words_that_weigh_anything_are_returned_with_their_weights(
    open_client: OpenClient, sparse: TinyPackage
) -> None:
    async with open_client("sparse") as client:
        found = await vectors(client, input=TEXTS)
        card = (await client.get("/v1/models")).json()["data"][0]
    for text, words in zip(TEXTS, found, strict=True):
        ids = torch.tensor([sparse.tokenizer.encode(text).ids])
        with torch.no_grad():
            expected = sparse.model(ids, torch.ones_like(ids))[0].log1p()
        assert list(words) == expected.nonzero()[:, 0].tolist()
        np.testing.assert_allclose(list(words.values()), expected[expected > 0].numpy(), atol=1e-5)

    assert card["dimensions"] == sparse.manifest.vocab_size and card["tasks"] == ["embed_sparse", "rerank"]


async def test_a_text_has_the_same_vector_in_any_company(open_client: OpenClient, make_package: MakePackage) -> None:
    async with open_client(make_package("sparse", "int8").folder) as client:
        alone = [(await vectors(client, input=text))[0] for text in TEXTS]
        together = await vectors(client, input=[*TEXTS, "good " * 40, *["the dog"] * 70])

    assert together[: len(TEXTS)] == alone and together[-1] == together[-70]


async def test_only_the_heaviest_words_come_if_that_is_asked_for_and_as_they_are_written(
    open_client: OpenClient, sparse: TinyPackage
) -> None:
    async with open_client("sparse") as client:
        (whole,) = await vectors(client, input=TEXTS[0])
        answer = await post(client, "/embed_sparse", input=TEXTS[0], top_k=5, return_tokens=True)
    (found,) = answer["embeddings"]

    heaviest = sorted(sorted(whole, key=whole.__getitem__, reverse=True)[:5])
    assert found["indices"] == heaviest and found["values"] == [whole[token] for token in heaviest]
    assert found["tokens"] == [sparse.tokenizer.token_of(token) for token in heaviest]


async def test_ids_prompts_and_long_texts_are_read_as_by_embed(
    open_client: OpenClient, sparse: TinyPackage, tmp_path: Path
) -> None:
    embedding = {"normalize": False, "prompts": {"query": "the dog: "}}
    ids, words = sparse.tokenizer.encode(TEXTS[0]).ids, ["good", "red", "dog"] * 30
    long = " ".join(words)
    async with open_client(with_manifest(sparse, tmp_path / "prompted", embedding=embedding)) as client:
        assert await vectors(client, input=[ids, ids]) == await vectors(client, input=[TEXTS[0]] * 2)
        assert await vectors(client, input="good", prompt_name="query") == await vectors(client, input="the dog: good")
        cut, ends = [await vectors(client, input=text, truncate=True) for text in (long, " ".join(words[:62]))]
        assert cut == ends
        tei = await post(client, "/embed_sparse", inputs=[TEXTS[0], long], truncation_direction="Left")
        first, end = await vectors(client, input=[TEXTS[0], " ".join(words[-62:])])
        assert await post(client, "/embed_sparse", inputs=ids) == tei[:1]

    assert [each["index"] for each in tei[1]] == list(end) and [end] != cut
    assert tei[0] == [{"index": index, "value": value} for index, value in first.items()]


async def test_a_model_may_keep_only_its_heaviest_words(
    open_client: OpenClient, sparse: TinyPackage, tmp_path: Path
) -> None:
    few = with_manifest(sparse, tmp_path / "few", embedding={"normalize": False, "max_words": 3})
    async with open_client(few) as client:
        (own,) = await vectors(client, input=TEXTS[0])
        assert own == (await vectors(client, input=TEXTS[0], top_k=3))[0] and len(own) == 3
        (more,) = await vectors(client, input=TEXTS[0], top_k=4)
        assert own.items() < more.items()
        (ranked,) = (await post(client, "/rerank", query=TEXTS[0], documents=TEXTS[:1]))["results"]

    assert ranked["relevance_score"] == pytest.approx(sum(weight**2 for weight in own.values()))


async def test_an_id_that_the_tokenizer_lacks_has_no_word(
    open_client: OpenClient, sparse: TinyPackage, tmp_path: Path
) -> None:
    async with open_client("sparse") as client:
        (found,) = await vectors(client, input="good dog")
    missing = next(token for token in found if token > 4 and token not in sparse.tokenizer.encode("good dog").ids)
    package = with_manifest(sparse, tmp_path / "holes")
    described = json.loads((package / TOKENIZER_FILE).read_text())
    del described["model"]["vocab"][sparse.tokenizer.token_of(missing)]
    (package / TOKENIZER_FILE).write_text(json.dumps(described))
    manifest = json.loads((package / "manifest.json").read_text())
    manifest["sha256"][TOKENIZER_FILE] = sha256_of(package / TOKENIZER_FILE)
    (package / "manifest.json").write_text(json.dumps(manifest))
    async with open_client(package) as client:
        answer = await post(client, "/embed_sparse", input="good dog", return_tokens=True)
    (vector,) = answer["embeddings"]

    named = dict(zip(vector["indices"], vector["tokens"], strict=True))
    assert [token for token, word in named.items() if not word] == [missing]


async def test_a_request_of_several_parts_runs_beside_shorter_ones(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[bool] = []

    async def recorded(lane: _Lane, *given: Any) -> list[Array]:
        lanes.append(lane._yields)
        return await run(lane, *given)

    monkeypatch.setattr(_Lane, "run", recorded)
    async with open_client("sparse") as client:
        await post(client, "/embed_sparse", input=["good dog " * 10] * (2 * ROWS_AT_ONCE))
        await post(client, "/embed_sparse", input="good dog")

    assert lanes == [True, True, False]


@pytest.mark.parametrize("similarity", [None, "dot", "cosine", "euclidean", "manhattan"])
async def test_documents_are_ranked_by_the_similarity_of_vectors(
    open_client: OpenClient, sparse: TinyPackage, tmp_path: Path, similarity: str | None
) -> None:
    package = with_manifest(sparse, tmp_path / "ranker", embedding={"normalize": False, "similarity": similarity})
    async with open_client(package) as client:
        query, *documents = await vectors(client, input=["red dog", *TEXTS])
        ranked = (await post(client, "/rerank", query="red dog", documents=TEXTS))["results"]
        alone = (await post(client, "/rerank", query="red dog", documents=TEXTS[1:2]))["results"]
        (itself,) = (await post(client, "/rerank", query=TEXTS[0], documents=TEXTS[:1]))["results"]
    dense = np.zeros((1 + len(documents), sparse.manifest.vocab_size))
    for row, words in zip(dense, [query, *documents], strict=True):
        row[list(words)] = list(words.values())
    expected = np.asarray(SimilarityFunction.to_similarity_fn(similarity or "dot")(dense[:1], dense[1:]))[0]

    assert [each["index"] for each in ranked] == np.argsort(-expected).tolist()
    scores = {each["index"]: each["relevance_score"] for each in ranked}
    assert [scores[place] for place in range(len(TEXTS))] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert alone[0]["relevance_score"] == scores[1]
    assert itself["relevance_score"] == {"cosine": 1, "euclidean": 0, "manhattan": 0}.get(
        similarity or "dot", itself["relevance_score"]
    )


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        ("/embed_sparse", {"input": []}, "input", "send at least one text"),
        ("/embed_sparse", {"input": "x", "top_k": 0}, "top_k", "greater than or equal to 1"),
        ("/embed_sparse", {"input": "x", "max_active_dims": 9}, "max_active_dims", "did you mean top_k?"),
        ("/embed_sparse", {"input": "good " * 90}, "input", "the limit is 64"),
        ("/embed_sparse", {"input": [[2, 9999]]}, "input", "ids go from 0 to"),
        ("/embed_sparse", {"input": [[2, 3]], "prompt": "x"}, "prompt", "goes with texts"),
        ("/embed_sparse", {"input": "x", "prompt_name": "query"}, "prompt_name", "this model has none"),
        ("/embed_sparse", {"input": ["x"] * 200, "prompt": "y" * 300}, "prompt", "with all that is repeated"),
        ("/embed_sparse", {"input": "x", "model": "embed"}, "model", "is for embed and rerank, not for embed_sparse"),
        ("/embed", {"input": "x", "model": "sparse"}, "model", "is for embed_sparse and rerank, not for embed"),
        (
            "/rerank",
            {"query": "x", "documents": ["y"], "model": "sparse", "activation": "sigmoid"},
            "activation",
            "none",
        ),
    ],
)
async def test_what_cannot_be_answered_is_refused_by_field(
    open_client: OpenClient,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, Any],
    param: str,
    words: str,
) -> None:
    monkeypatch.setattr(texts, "MAX_COPIED", 50_000)
    async with open_client("sparse", "embed") as client:
        response = await client.post(path, json=body)

    error = response.json()["error"]
    assert response.status_code in {400, 413, 422} and error["param"] == param and words in error["message"], error


async def test_each_kind_of_vector_has_its_model(open_client: OpenClient) -> None:
    async with open_client("sparse", "embed") as client:
        dense = await post(client, "/embed", input="good")
        sparse = await post(client, "/embed_sparse", input="good")
        info = (await client.get("/info", params={"model": "sparse"})).json()

    assert (dense["model"], sparse["model"]) == ("embed", "sparse")
    assert info["model_type"] == {"embedding": {"pooling": "splade"}}
