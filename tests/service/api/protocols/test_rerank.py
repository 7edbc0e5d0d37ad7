"""Rerank in Jina's and Cohere's form: the native ranks in their words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conftest import TEXTS
from tests.service.api.conftest import Client, OpenClient, post


@pytest.fixture
async def client(open_client: OpenClient) -> AsyncIterator[Client]:
    async with open_client("ranker", "sentiment") as client:
        yield client


async def test_jinas_form_has_the_native_ranks_and_the_documents(client: Client) -> None:
    body: dict[str, Any] = {"query": "the dog", "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]], "top_n": 2}
    native = await post(client, "/rerank", **body, return_documents=True)
    answer = await post(client, "/v1/rerank", **body, task="rerank")

    tokens = native["usage"]["prompt_tokens"]
    assert answer == {
        "model": "ranker",
        "object": "list",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": native["results"],
    }
    assert "document" not in (await post(client, "/v1/rerank", **body, return_documents=False))["results"][0]


async def test_coheres_form_has_the_native_ranks_without_the_documents(client: Client) -> None:
    body: dict[str, Any] = {"query": "the dog", "documents": TEXTS}
    native = await post(client, "/rerank", **body)
    answer = await post(client, "/v2/rerank", **body, max_tokens_per_doc=4096, priority=1)

    assert answer["results"] == native["results"] and len(answer["id"]) == 32
    assert answer["meta"]["tokens"] == {"input_tokens": native["usage"]["prompt_tokens"]}


async def test_both_forms_have_the_cosines_of_an_embedding_model_as_they_are(open_client: OpenClient) -> None:
    body: dict[str, Any] = {"query": "the dog", "documents": [*TEXTS, "good film " * 100]}
    async with open_client("embed") as client:
        native = await post(client, "/rerank", **body, truncate=True)
        jina = await post(client, "/v1/rerank", **body, return_documents=False)
        cohere = await post(client, "/v2/rerank", **body, max_tokens_per_doc=64)
        refused = await client.post("/v1/rerank", json={**body, "truncation": False})

    assert jina["results"] == cohere["results"] == native["results"]
    tokens = native["usage"]["prompt_tokens"]
    assert jina["usage"]["total_tokens"] == cohere["meta"]["tokens"]["input_tokens"] == tokens
    assert refused.json()["detail"].startswith("documents has")


async def test_what_asks_for_what_is_done_anyway_is_passed_over(client: Client) -> None:
    body = {"query": "Who?", "documents": [{"text": "Dan."}, {"text": "The dog."}]}
    asked = {"truncate_prompt_tokens": -1, "max_chunks_per_doc": 1, "rank_fields": ["text"], "max_doc_length": 9999}
    asked |= {"use_activation": True, "activation": "sigmoid", "top_n": 0, "top_k": -1, "max_tokens_per_query": 9999}
    for path in ("/v1/rerank", "/v2/rerank"):
        plain, answer = [(await post(client, path, **body, **more))["results"] for more in ({}, asked)]
        assert answer == plain


async def test_how_many_and_what_is_cut_may_be_said_as_other_servers_take_it(client: Client) -> None:
    body = {"query": "the dog", "documents": [f"{TEXTS[0]} {'good film ' * 100}", TEXTS[1]]}
    native = await post(client, "/rerank", **body, truncate=True, truncation_side="left", top_n=1)
    answer = await post(client, "/v1/rerank", **body, truncation_side="left", top_k=1, return_documents=False)
    other = await post(client, "/v1/rerank", **body, top_k=1, return_documents=False)

    assert answer["results"] == native["results"] and len(other["results"]) == 1


async def test_documents_that_fit_alike_stay_in_their_order(client: Client) -> None:
    documents = [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[1], TEXTS[0]]
    found = (await post(client, "/rerank", query="the dog", documents=documents))["results"]

    order = [result["index"] for result in found]
    assert order in ([0, 2, 4, 1, 3], [1, 3, 0, 2, 4])


async def test_documents_that_are_too_long_are_cut(client: Client) -> None:
    body = {"query": "the dog", "documents": ["good film " * 100]}
    native = await post(client, "/rerank", **body, truncate=True)
    refused = await client.post("/v1/rerank", json={**body, "truncation": False})

    for path in ("/v1/rerank", "/v2/rerank"):
        (result,) = (await post(client, path, **body))["results"]
        assert result["relevance_score"] == native["results"][0]["relevance_score"]
    assert refused.status_code == 422 and refused.json()["detail"].startswith("documents has")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/rerank", {"documents": []}, 422, "documents is empty"),
        ("/v1/rerank", {"documents": ["x"], "top_n": -1}, 422, "top_n: "),
        ("/v1/rerank", {"documents": ["x"], "use_activation": False}, 422, "use_activation: "),
        ("/v1/rerank", {"documents": ["x"], "activation": "softmax"}, 422, "activation: "),
        ("/v1/rerank", {"documents": ["x"], "instruction": "Rank."}, 422, "instruction: this is not done here"),
        ("/v1/rerank", {"documents": ["x"], "max_tokens_per_query": 5}, 422, "max_tokens_per_query is 5; texts are"),
        ("/v1/rerank", {"documents": ["x"], "max_tokens_per_doc": 5}, 422, "send 64 or more"),
        ("/v1/rerank", {"documents": ["x"], "max_query_length": 5}, 422, "max_query_length is 5; texts are cut"),
        ("/v1/rerank", {"documents": ["x"], "raw_scores": True}, 422, "raw_scores: this is not done here"),
        ("/v2/rerank", {"documents": ["x"], "max_chunks_per_doc": 3}, 400, "max_chunks_per_doc: "),
        ("/v1/rerank", {"documents": ["x"], "model": "nobody"}, 404, "there is no model 'nobody'"),
        ("/v2/rerank", {"documents": ["x"] * 257}, 413, "the limit is 256"),
        ("/v2/rerank", {"documents": ["x"], "max_tokens_per_doc": 63}, 400, "send 64 or more"),
        ("/v2/rerank", {"documents": ["x"], "relevant_spans": {"mode": "enabled"}}, 400, "relevant_spans.mode: "),
        ("/v2/rerank", {"documents": ["x"], "model": "sentiment"}, 400, "not for rerank"),
    ],
)
async def test_errors_have_the_clients_form(
    client: Client, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    response = await client.post(path, json={"query": "x", **body})

    ((field, message),) = response.json().items()
    assert (response.status_code, field) == (status, "detail" if path == "/v1/rerank" else "message"), response.text
    assert words in message
