"""What is wrong with a request to an encoder is named, with the field and the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.service.api.conftest import Client, OpenClient, limits


@pytest.fixture
async def client(open_client: OpenClient) -> AsyncIterator[Client]:
    names = ("sentiment", "entailment", "ranker", "entities", "answers", "embed", "fashion")
    async with open_client(*names, settings=limits(max_rows=300)) as opened:
        yield opened


ZERO_SHOT = {"model": "entailment", "input": "x", "labels": ["a", "b"]}
LONG = "good film " * 100


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "words"),
    [
        ("/classify", {"input": "x", "labels": ["a"]}, 422, "labels", "'sentiment' has its own labels (negative, pos"),
        ("/classify", {**ZERO_SHOT, "labels": []}, 422, "labels", "at least one label"),
        ("/classify", {**ZERO_SHOT, "labels": [1]}, 422, "labels", "valid string"),
        ("/classify", {**ZERO_SHOT, "labels": ["a"] * 301}, 413, "labels", "the limit is 300"),
        ("/classify", {**ZERO_SHOT, "input": ["x"] * 151}, 413, "labels", "comes to 302 texts to read"),
        ("/classify", {**ZERO_SHOT, "labels": ["a" * 5000]}, 422, "labels", "64 tokens, or 4096"),
        ("/classify", {**ZERO_SHOT, "hypothesis_template": "no"}, 422, "hypothesis_template", "has no {}"),
        ("/classify", {**ZERO_SHOT, "input": [["x", "y"]]}, 422, "input", "single texts"),
        ("/classify", {**ZERO_SHOT, "activation": "none"}, 422, "activation", "multi_label"),
        ("/classify", {**ZERO_SHOT, "input": LONG}, 422, "input", "tokens in a pair; the limit is 64"),
        ("/classify", {**ZERO_SHOT, "labels": [LONG], "windows": True}, 422, "labels", "the limit is 32"),
        ("/classify", {"input": "x", "multi_label": True}, 422, "multi_label", "send labels, too"),
        ("/classify", {"input": "x", "activation": "relu"}, 422, "activation", "'softmax', 'sigmoid' or 'none'"),
        ("/classify", {"input": "x", "windows": True, "truncate": True}, 422, "windows", "choose one"),
        ("/classify", {"input": "x", "truncation_side": "left"}, 422, "truncation_side", "goes with truncate: true"),
        ("/classify", {"input": [["x", "y"]], "windows": True}, 422, "windows", "single texts"),
        ("/classify", {"input": LONG, "windows": True, "overlap": 62}, 422, "overlap", "the limit is 61"),
        ("/classify", {"input": LONG, "windows": True, "overlap": -1}, 422, "overlap", "greater than or equal to 0"),
        ("/classify", {"input": "good " * 20_000, "windows": True}, 413, "input", "more than 256 windows"),
        ("/classify", {"input": LONG, "windows": True, "overlap": 61}, 200, "", ""),
        ("/classify", {"model": "fashion", "input": "x", "labels": ["a"]}, 422, "labels", "no others"),
        ("/rerank", {"query": "x"}, 422, "documents", "required"),
        ("/rerank", {"query": "x", "documents": []}, 422, "documents", "at least one"),
        ("/rerank", {"query": "x", "documents": [{"body": "y"}]}, 422, "documents", "documents.0.text: Field required"),
        ("/rerank", {"query": "x", "documents": ["y"] * 257}, 413, "documents", "the limit is 256"),
        ("/rerank", {"query": "x", "documents": ["y"], "top_n": 0}, 422, "top_n", "greater than or equal to 1"),
        ("/rerank", {"query": "x", "documents": [LONG]}, 422, "documents", "tokens in a pair; the limit is 64"),
        ("/rerank", {"query": "x" * 5000, "documents": ["y"]}, 422, "query", "64 tokens, or 4096"),
        ("/rerank", {"model": "sentiment", "query": "x", "documents": ["y"]}, 422, "model", "not for rerank"),
        ("/tag", {"input": []}, 422, "input", "at least one"),
        ("/tag", {"input": "x", "aggregation": "loudest"}, 422, "aggregation", "'none', 'simple'"),
        ("/tag", {"input": "x", "overlap": 62}, 422, "overlap", "the limit is 61"),
        ("/tag", {"input": ["x"] * 257}, 413, "input", "the limit is 256"),
        ("/tag", {"input": "good " * 20_000}, 413, "input", "the limit is 256"),
        ("/answer", {"question": "x"}, 422, "context", "required"),
        ("/answer", {"question": [], "context": "y"}, 422, "question", "at least one"),
        ("/answer", {"question": "x", "context": []}, 422, "context", "at least one"),
        ("/answer", {"question": ["x"] * 2, "context": ["y"] * 3}, 422, "question", "2 texts and context 3"),
        ("/answer", {"question": "x", "context": ["y"] * 257}, 413, "context", "the limit is 256"),
        ("/answer", {"question": ["x"] * 257, "context": "y"}, 413, "question", "the limit is 256"),
        ("/answer", {"question": "good " * 40, "context": "y"}, 422, "question", "the limit is 32"),
        ("/answer", {"question": "x" * 5000, "context": "y"}, 422, "question", "64 tokens, or 4096"),
        ("/answer", {"question": "x", "context": "y", "top_k": 0}, 422, "top_k", "greater than or equal to 1"),
        ("/embed", {"input": "x", "dimensions": 33}, 422, "dimensions", "the limit is 32"),
        ("/embed", {"input": "x", "dimensions": 0}, 422, "dimensions", "greater than or equal to 1"),
        ("/embed", {"input": "x", "prompt_name": "query"}, 422, "prompt_name", "this model has none"),
        ("/embed", {"input": "x", "prompt": "a", "prompt_name": "b"}, 422, "prompt", "send one"),
        ("/embed", {"input": "x", "prompt": "x" * 5000}, 422, "prompt", "64 tokens, or 4096"),
        ("/embed", {"input": "x", "prompt": "good " * 40, "windows": True}, 422, "prompt", "the limit is 32"),
        ("/fill", {"input": "[MASK]"}, 404, "model", "entailment (classify), ranker (rerank, classify)"),
    ],
)
async def test_bad_requests_name_the_field_and_the_limit(
    client: Client, path: str, body: dict[str, Any], status: int, param: str, words: str
) -> None:
    response = await client.post(path, json=body)

    assert response.status_code == status, response.text
    if status != 200:
        error = response.json()["error"]
        assert error["param"] == param, error
        assert words in error["message"]


async def test_exactly_as_much_as_is_allowed_is_answered(open_client: OpenClient) -> None:
    words = "good " * (62 * 3)
    async with open_client("entities", "entailment", settings=limits(max_inputs=3, max_rows=4)) as client:
        asked = (
            ("/tag", {"input": words, "overlap": 0}, {"input": words + "good", "overlap": 0}),
            ("/classify", {**ZERO_SHOT, "input": ["x", "y"]}, {**ZERO_SHOT, "input": ["x", "y", "z"]}),
            ("/tokenize", {"input": "x" * 32_768}, {"input": "x" * 32_769}),
        )
        for path, most, more in asked:
            answered, refused = await client.post(path, json=most), await client.post(path, json=more)
            assert (answered.status_code, refused.status_code) == (200, 413), (answered.text, refused.text)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/classify", {"input": ["", "\u0000"], "windows": True}),
        ("/classify", {**ZERO_SHOT, "labels": ["", "{}"], "hypothesis_template": "{}{0.__class__}"}),
        ("/rerank", {"query": "", "documents": ["", ""], "top_n": 9}),
        ("/tag", {"input": ["", " \n", "🙂🙂", "x" * 300, "\u0000"]}),
        ("/tag", {"input": "x", "overlap": 61, "ignore_labels": []}),
        ("/answer", {"question": "", "context": ["", " "], "no_answer": True, "top_k": 100}),
        ("/answer", {"question": "x", "context": "y " * 200, "max_answer_tokens": 512, "top_k": 100}),
        ("/embed", {"input": ["", "x"], "windows": True, "dimensions": 1, "prompt": " "}),
    ],
)
async def test_the_farthest_values_are_answered(client: Client, path: str, body: dict[str, Any]) -> None:
    response = await client.post(path, json=body)

    assert response.status_code == 200, response.text


async def test_a_full_queue_refuses_windows_before_a_text_is_read(open_client: OpenClient, encoded: list[str]) -> None:
    # A text of some thirty windows takes most of the queue; by itself each of these requests would fit.
    async with open_client("entities", max_waiting_slots=40, batch_tokens=16) as client:
        encoded.clear()  # what was read as the model was opened
        bodies = [{"input": f"{word} " * 2000} for word in ("good", "bad", "dog", "ball")]
        answers = await asyncio.gather(*(client.post("/tag", json=body) for body in bodies))

    codes = [answer.status_code for answer in answers]
    assert sorted(set(codes)) == [200, 429]
    for body, code in zip(bodies, codes, strict=True):
        assert any(text.startswith(body["input"][:4]) for text in encoded) == (code == 200)
