"""What OpenAI's routes send, byte by byte, at every address; and the requests of programs that measure servers."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.integration.service.asking import WAYS, request

pytestmark = pytest.mark.integration

QUESTION = {"type": "predicate", "instructions": "It is about a film."}
MESSAGES = [{"role": "user", "content": "Who is Dan?"}]
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("embed", "/v1/embeddings", {"input": ["The film was good.", "a"], "encoding_format": "base64"}),
    ("stories", "/v1/completions", {"prompt": "Once", "seed": 1, "max_tokens": 20, "logprobs": 1}),
    ("stories", "/v1/completions", {"prompt": "Once", "seed": 1, "max_tokens": 20, "stream": True}),
    ("stories", "/v1/chat/completions", {"messages": MESSAGES, "seed": 1, "max_tokens": 20}),
    ("stories", "/v1/chat/completions", {"messages": MESSAGES, "seed": 1, "max_tokens": 20, "stream": True}),
    ("sentiment", "/v1/decisions", {"input": "a", "questions": [{**QUESTION, "name": "positive"}]}),
    ("embed", "/v1/embeddings", {"input": []}),
]


def answer(service: str, way: str, model: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """Return status and body of an answer, without the second in which it was made."""
    response = httpx.request(**request(service, way, model, path, body), headers={"X-Request-ID": "mine"})
    return response.status_code, re.sub(r'"created":\d+', '"created":0', response.text)


@pytest.mark.parametrize(("model", "path", "body"), REQUESTS)
def test_every_way_to_a_model_leads_to_the_same_bytes(
    service: str, model: str, path: str, body: dict[str, Any]
) -> None:
    answers = {answer(service, way, model, path, body) for way in WAYS}
    if body.get("stream"):  # what waits for a slow reader is merged, here and there
        answers = {(status, joined(text)) for status, text in answers}

    assert len(answers) == 1


def joined(stream: str) -> str:
    """Return what a stream says, however it was cut."""
    chunks = [json.loads(line[6:]) for line in stream.split("\n\n") if line.startswith("data: {")]
    texts = [piece.get("text") or piece.get("delta", {}).get("content") or "" for c in chunks for piece in c["choices"]]
    ids = {chunk["id"] for chunk in chunks}
    return f"{ids} {''.join(texts)} {chunks[-1]['choices'][0]['finish_reason']} {stream[-16:]}"


# What `vllm bench serve` and guidellm send to /v1/completions and /v1/chat/completions.
OF_BENCHMARKS: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/completions",
        {
            "model": "stories",
            "prompt": "Once upon a time",
            "repetition_penalty": 1.0,
            "temperature": 0.0,
            "max_tokens": 24,
            "logprobs": None,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        },
    ),
    (
        "/v1/chat/completions",
        {
            "model": "stories",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Who is Dan?"}]}],
            "temperature": 0.0,
            "max_completion_tokens": 24,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "ignore_eos": True,
            "stop": None,
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), OF_BENCHMARKS)
def test_benchmarks_count_the_tokens_that_they_asked_for(service: str, path: str, body: dict[str, Any]) -> None:
    usage, pieces = None, 0
    with httpx.stream("POST", service + path, json=body, timeout=60) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    for chunk in map(json.loads, lines):
        if chunk["choices"]:
            pieces += 1
            assert usage is None
        else:
            usage = chunk["usage"]

    assert usage is not None and usage["completion_tokens"] == 24 and pieces > 1
