"""What a body asks to be repeated is counted before it is made: two megabytes must not become a hundred gigabytes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from model.package.part import Side
from service.tasks.texts import MAX_COPIED, with_fewer_characters
from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import OpenClient

MAX_BYTES = 30_000_000
CHOICES = [{"value": str(value)} for value in range(100)]
QUESTION = {"type": "choice", "instructions": "a", "choices": CHOICES}
PREDICATE = {"type": "predicate", "instructions": "a"}

# Paths and bodies, and which field is named. Each would come to hundreds of megabytes, mostly many thousands.
ASKED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "an input with thousands of choices": (
        "stories",
        "/v1/decisions",
        {"input": "a" * 1_000_000, "questions": [QUESTION] * 40},
        "questions",
    ),
    "an input with some choices": (
        "stories",
        "/v1/decisions",
        {"input": "a" * 1_000_000, "questions": [QUESTION]},
        "questions",
    ),
    "a question with thousands of choices": (
        "entailment",
        "/v1/decisions",
        {"input": "a", "questions": [{**QUESTION, "instructions": "a" * 1_000_000}]},
        "questions",
    ),
    "labels in a template with many places": (
        "entailment",
        "/classify",
        {"input": ["a"] * 200, "labels": ["a" * 1000], "hypothesis_template": "{}" * 1500},
        "labels",
    ),
    "texts beside many labels": (
        "entailment",
        "/classify",
        {"input": "a " * 500_000, "labels": ["a"] * 100, "windows": True},
        "labels",
    ),
    "a context with many questions": (
        "answers",
        "/answer",
        {"question": ["who?"] * 20, "context": "a" + " " * 1_000_000},
        "context",
    ),
}


@pytest.mark.parametrize("kind", ASKED)
async def test_what_is_repeated_too_often_is_refused_before_it_is_made(open_client: OpenClient, kind: str) -> None:
    package, path, body, param = ASKED[kind]
    async with open_client(package) as client:
        await client.post(path, json={**body, "input": "a"})  # so that nothing is imported for the first time below
        tracemalloc.start()
        try:
            response = await client.post(path, json=body)
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert response.status_code in {413, 422}
    assert response.json()["error"]["param"] == param
    assert most_bytes < MAX_BYTES


@pytest.mark.parametrize(
    ("package", "path", "body", "param"),
    [
        ("entailment", "/classify", {"input": "a " * 300, "labels": ["a"] * 100, "truncate": True}, "labels"),
        ("entailment", "/classify", {"input": "a" + " " * 300, "labels": ["a"] * 100}, "labels"),
        ("entailment", "/v1/decisions", {"input": "a " * 300, "questions": [QUESTION], "truncate": True}, "questions"),
        ("ranker", "/rerank", {"query": "a" + " " * 300, "documents": ["a"] * 100}, "query"),
        ("stories", "/generate", {"prompt": "a " * 40, "n": 256, "echo": True, "max_tokens": 0}, "echo"),
    ],
)
async def test_a_text_counts_once_for_each_that_it_is_read_beside(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, package: str, path: str, body: dict[str, Any], param: str
) -> None:
    monkeypatch.setattr("service.tasks.texts.MAX_COPIED", 20_000)
    async with open_client(package) as client:
        response = await client.post(path, json=body)

    assert response.status_code in {413, 422}
    assert response.json()["error"]["param"] == param and "the limit is 20000 for one request" in response.text


async def test_a_text_that_is_read_beside_many_is_cut_once(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[str] = []

    def counted(text: str, limit: int, side: Side) -> str:
        cut.append(text)
        return with_fewer_characters(text, limit, side)

    monkeypatch.setattr("service.tasks.texts.with_fewer_characters", counted)
    async with open_client("entailment") as client:
        body = {"input": "a " * 300, "labels": [f"label {number}" for number in range(50)], "truncate": True}
        response = await client.post("/classify", json=body)

    assert response.status_code == 200 and len(cut) == 51


async def test_what_is_repeated_in_an_answer_is_counted_before_it_is_written(open_client: OpenClient) -> None:
    text = "[MASK]" + " " * 200
    async with open_client("encoder") as client:
        few = await client.post("/pipeline/fill-mask", json={"inputs": text, "parameters": {"top_k": 2}})
        many = await client.post("/pipeline/fill-mask", json={"inputs": [text * 15] * 30, "parameters": {"top_k": 100}})

    assert few.status_code == 200, few.text
    assert many.status_code == 413
    assert str(MAX_COPIED) in many.text


async def test_choices_are_counted_in_all_questions_together(open_client: OpenClient) -> None:
    async with open_client("sentiment") as client:
        response = await client.post("/v1/decisions", json={"input": "a", "questions": [QUESTION] * 41})

    assert response.status_code == 400
    assert "at most 4096 choices together, not 4100" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "field", "counted"),
    [
        ("/generate", "messages", {"role": "user", "content": [{"type": "text", "text": "a"}] * 41}),
        ("/v1/chat/completions", "messages", {"role": "user", "content": [{"type": "text", "text": "a"}] * 41}),
        ("/v1/responses", "input", {"content": [{"type": "input_text", "text": "a"}] * 41}),
        ("/v1/responses", "input", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}] * 41}),
        ("/v1/decisions", "input", {"content": [{"type": "input_text", "text": "a"}] * 41}),
    ],
)
async def test_parts_are_counted_in_a_whole_conversation(
    open_client: OpenClient, path: str, field: str, counted: dict[str, object]
) -> None:
    body = {field: [counted] * 100} | ({"questions": [QUESTION]} if path == "/v1/decisions" else {})
    async with open_client("stories", "sentiment") as client:
        response = await client.post(path, json=body)

    assert response.status_code in {400, 422}
    assert field in response.text and "at most 4096 parts together, not 4100" in response.text


@pytest.mark.parametrize("text", ["\ud800", {"\udfff": 1}, ["a", "\ud800"]], ids=["a text", "a key", "in a list"])
@pytest.mark.parametrize("field", ["input", "instructions"])
async def test_half_a_surrogate_pair_in_json_is_refused(open_client: OpenClient, field: str, text: object) -> None:
    part = [{"type": "input_json", "data": text}]
    question = {**PREDICATE, "instructions": part if field == "instructions" else "a"}
    body = {"input": [{"content": part}] if field == "input" else "a", "questions": [question]}
    async with open_client("stories") as client:
        # In ASCII, as httpx writes characters as they are.
        headers = {"Content-Type": "application/json"}
        response = await client.post("/v1/decisions", content=json.dumps(body), headers=headers)

    assert response.status_code == 400
    assert "surrogate" in response.json()["error"]["message"]


DEEP: dict[str, tuple[str, Any]] = {
    "an argument of the template": ("/v1/chat/completions", lambda deep: {"chat_template_kwargs": {"a": deep}}),
    "a tool": ("/v1/chat/completions", lambda deep: {"tools": [{"type": "function", "function": deep}]}),
    "a field of a message": (
        "/v1/chat/completions",
        lambda deep: {"messages": [{"role": "user", "content": "a", "a": deep}]},
    ),
    "a schema": ("/generate", lambda deep: {"prompt": "a", "grammar": {"json_schema": deep}}),
}


@pytest.mark.parametrize("depth", [150, 190, 600, 900])
@pytest.mark.parametrize("kind", DEEP)
async def test_however_deep_a_body_is_the_answer_is_no_fault_of_the_server(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path, kind: str, depth: int
) -> None:
    path, body_of = DEEP[kind]
    deep: dict[str, Any] = {}
    for _ in range(depth):
        deep = {"items": deep}
    given = {"max_tokens": 1, **body_of(deep)}
    if path != "/generate":
        given = {"messages": [{"role": "user", "content": "a"}], **given}
    template = {"source": "{% for m in messages %}{{ m.content }}{% endfor %}"}
    async with open_client(with_manifest(stories, tmp_path / "chat", chat_template=template)) as client:
        response = await client.post(path, json=given)

    assert response.status_code < 500, response.text
    if depth > 200:
        assert "more than 200 lists and objects in one another" in response.json()["error"]["message"]
