"""Routes of other protocols are the same to the byte at `/` and at a model's own address."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import TEXTS

pytestmark = pytest.mark.integration

GENERATION = {"max_new_tokens": 9, "seed": 3, "temperature": 1.0}
SENTENCES = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("embed", "/embed", {"inputs": TEXTS}),
    ("embed", "/similarity", {"inputs": SENTENCES}),
    ("embed", "/embed_sparse", {"inputs": "x"}),
    ("sentiment", "/predict", {"inputs": TEXTS[0]}),
    ("ranker", "/rerank", {"query": "the dog", "texts": TEXTS}),
    ("ranker", "/v1/rerank", {"query": "the dog", "documents": TEXTS}),
    ("stories", "/tokenize", {"inputs": TEXTS[0]}),
    ("stories", "/decode", {"ids": [[5, 6], [7]]}),
    ("translate", "/translate", {"q": TEXTS, "source": "auto", "target": "sv", "alternatives": 1}),
    ("translate", "/detect", {"q": TEXTS[0]}),
    ("translate", "/v2/translate", {"text": TEXTS, "target_lang": "DE"}),
    ("stories", "/", {"inputs": "Once", "parameters": GENERATION}),
    ("stories", "/pipeline/text-generation", {"inputs": "Once", "parameters": GENERATION, "stream": True}),
]


@pytest.mark.parametrize(("model", "path", "body"), REQUESTS, ids=lambda each: each if isinstance(each, str) else "")
def test_an_answer_is_the_same_at_both_addresses(service: str, model: str, path: str, body: dict[str, Any]) -> None:
    asked = {**body, "model": model}
    answers = [httpx.post(f"{service}{prefix}{path}", json=asked, timeout=60) for prefix in ("", f"/models/{model}")]

    assert answers[0].status_code == answers[1].status_code == (424 if path == "/embed_sparse" else 200)
    assert answers[0].content == answers[1].content and len(answers[0].content) > 2


def test_a_models_address_is_described_in_teis_form(service: str) -> None:
    there = httpx.get(f"{service}/models/sentiment/info", timeout=60).json()

    assert there == httpx.get(f"{service}/info", params={"model": "sentiment"}, timeout=60).json()
    assert there["model_id"] == "sentiment"
