"""Requests of every task, and the ways in which they come to a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("sentiment", "/classify", {"input": ["The film was good.", "not so good"]}),
    ("embed", "/embed", {"input": ["The film was good.", "not so good"]}),
    ("stories", "/generate", {"prompt": "Once upon a time", "max_tokens": 9, "temperature": 0}),
    ("translate", "/translate", {"input": "Dan loves ice cream.", "target": "sv", "max_tokens": 9}),
    ("stories", "/generate", {"messages": [{"role": "user", "content": "Who is Dan?"}], "max_tokens": 9, "seed": 1}),
    ("translate", "/summarize", {"input": "Once upon a time there was a little dog."}),
    ("translate", "/tokenize", {"input": "Dan", "model": "translate"}),
    ("entailment", "/classify", {"input": "The film was good.", "labels": ["film", "dog"], "model": "entailment"}),
    ("sentiment", "/classify", {"input": "The film was good. " * 40, "windows": True}),
    ("ranker", "/rerank", {"query": "the dog", "documents": ["a red ball", {"text": "the dog"}], "top_n": 1}),
    ("entities", "/tag", {"input": ["Dan loves ice cream. " * 40, "The dog was good."]}),
    ("answers", "/answer", {"question": "Who?", "context": "Dan loves ice cream. " * 40, "top_k": 3}),
    ("encoder", "/fill", {"input": "Dan loves [MASK]."}),
    ("embed", "/embed", {"input": "The film was good.", "dimensions": 8, "prompt": "the dog: "}),
]
LONG: dict[str, Any] = {"prompt": "Once", "max_tokens": 120, "min_tokens": 120, "n": 256}

# By default, by name, by address; and spelt so that HAProxy leaves it to the gateway.
WAYS = ["/", "/ model", "/models", "gateway"]
every_way = pytest.mark.parametrize("way", WAYS)


def request(service: str, way: str, model: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what httpx needs to ask a model in one of the ways."""
    if way == "gateway":
        hidden = json.dumps({"model": model, **body}).replace('"model":', '"mod\\u0065l":', 1)
        return {"method": "POST", "url": f"{service}{path}", "content": hidden, "timeout": 60}
    prefix, name = f"/models/{model}" if way == "/models" else "", {"model": model} if way == "/ model" else {}
    return {"method": "POST", "url": f"{service}{prefix}{path}", "json": {**name, **body}, "timeout": 60}
