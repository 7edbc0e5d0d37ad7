"""Cohere's client against the running service."""

from __future__ import annotations

from collections.abc import Iterator

import cohere
import httpx
import pytest

from tests.conftest import TEXTS
from tests.integration.service.clients.posting import post

pytestmark = pytest.mark.integration


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """What the client sends with, closed when it is no longer needed."""
    with httpx.Client(timeout=60) as http:
        yield http


def test_documents_are_ranked(service: str, http: httpx.Client) -> None:
    client = cohere.ClientV2(api_key="any", base_url=service, httpx_client=http)
    answer = client.rerank(model="ranker", query="the dog", documents=TEXTS, top_n=2)

    native = post(f"{service}/rerank", query="the dog", documents=TEXTS, top_n=2)
    assert [each.model_dump(exclude_none=True) for each in answer.results] == native["results"]
    assert answer.id and answer.meta and answer.meta.tokens
    assert answer.meta.tokens.input_tokens == native["usage"]["prompt_tokens"]


async def test_documents_are_ranked_without_waiting(service: str) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        client = cohere.AsyncClientV2(api_key="any", base_url=f"{service}/models/ranker", httpx_client=http)
        answer = await client.rerank(model="ranker", query="the dog", documents=TEXTS)

    assert sorted(each.index for each in answer.results) == [0, 1, 2]


def test_the_older_client_understands_jinas_form(service: str, http: httpx.Client) -> None:
    client = cohere.Client(api_key="any", base_url=service, httpx_client=http)
    answer = client.rerank(model="ranker", query="the dog", documents=TEXTS, return_documents=True)

    assert all(each.document and each.document.text == TEXTS[each.index] for each in answer.results)


def test_errors_are_the_clients_own(service: str, http: httpx.Client) -> None:
    client = cohere.ClientV2(api_key="any", base_url=service, httpx_client=http)

    with pytest.raises(cohere.BadRequestError) as empty:
        client.rerank(model="ranker", query="the dog", documents=[])
    assert empty.value.body == {"message": "documents is empty; send at least one document"}
    with pytest.raises(cohere.NotFoundError):
        client.rerank(model="nobody", query="the dog", documents=TEXTS)
