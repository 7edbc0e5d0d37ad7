from __future__ import annotations

import json
import re
from typing import Any

import pytest

from service.api.protocols.openai.forms import FORM_EXAMPLE
from tests.service.api.conftest import Client, events_of, post
from tests.service.api.protocols.openai.conftest import refused

PATHS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Tom is six."},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Who is Tom?"}]},
}
SCHEMA: Any = FORM_EXAMPLE["json_schema"]["schema"]  # type: ignore[index]  # a dictionary of dictionaries


def text_of(choice: dict[str, Any]) -> str:
    text: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_has_the_form_that_was_asked_for(client: Client, path: str) -> None:
    body = {**PATHS[path], "seed": 1, "max_tokens": 90, "n": 4}
    by_schema = await post(client, path, **body, response_format=FORM_EXAMPLE)
    natively = await post(client, path, **body, grammar={"json_schema": SCHEMA})

    assert by_schema["choices"] == natively["choices"]
    whole = [json.loads(text_of(choice)) for choice in by_schema["choices"] if choice["finish_reason"] == "stop"]
    assert whole and all(isinstance(each["age"], int) and len(each["name"]) <= 20 for each in whole)


@pytest.mark.parametrize("path", PATHS)
async def test_any_object_will_do_where_no_schema_is_sent(client: Client, path: str) -> None:
    body = {**PATHS[path], "seed": 1, "max_tokens": 12}
    for form in ({"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "any"}}):
        (choice,) = (await post(client, path, **body, response_format=form))["choices"]
        assert text_of(choice).startswith("{")


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_that_cannot_go_on_is_cut(client: Client, path: str) -> None:
    body = {**PATHS[path], "suppress_ids": list(range(300)), "grammar": {"choice": ["q"]}}
    (choice,) = (await post(client, path, **body))["choices"]
    *_, last = await events_of(client, path, **body)

    assert (text_of(choice), choice["finish_reason"]) == ("", "length")
    assert last["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema"},
        {"type": "xml"},
        {"type": "json_schema", "json_schema": {"schema": []}},
        {"type": "json_schema", "json_schema": SCHEMA},  # a level too high
        {"type": "json_object", "json_schema": {"schema": SCHEMA}},
        {"type": "json"},
        {"type": "json", "value": "a+"},
        {"type": "regex", "value": SCHEMA},
        {"type": "regex", "value": "a" * 70_000},
    ],
)
async def test_a_form_that_is_none_is_refused(client: Client, path: str, form: dict[str, Any]) -> None:
    error = await refused(client, path, **PATHS[path], response_format=form)

    assert error["param"].startswith("response_format")


@pytest.mark.parametrize("path", PATHS)
async def test_a_form_and_a_grammar_contradict_each_other(client: Client, path: str) -> None:
    forms: dict[str, Any] = {"response_format": {"type": "json_object"}, "grammar": {"choice": ["a"]}}
    assert (await refused(client, path, **PATHS[path], **forms))["param"] == "response_format"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["value", "schema"])  # as Hugging Face's client has it, and llama.cpp
@pytest.mark.parametrize("kind", ["json_object", "json_schema", "json"])
async def test_a_schema_beside_the_type_is_kept(client: Client, path: str, name: str, kind: str) -> None:
    body = {**PATHS[path], "seed": 1, "max_tokens": 60}
    expected = await post(client, path, **body, response_format=FORM_EXAMPLE)
    found = await post(client, path, **body, response_format={"type": kind, name: SCHEMA})

    assert found["choices"] == expected["choices"]


@pytest.mark.parametrize("name", ["value", "schema"])
async def test_a_schema_that_asks_for_nothing_is_one(client: Client, name: str) -> None:
    body = {**PATHS["/v1/completions"], "seed": 1, "max_tokens": 8}
    expected = await post(client, "/v1/completions", **body, grammar={"json_schema": {}})
    for kind in ("json_schema", "json"):
        assert (await post(client, "/v1/completions", **body, response_format={"type": kind, name: {}}))[
            "choices"
        ] == expected["choices"]


@pytest.mark.parametrize("path", PATHS)
async def test_an_expression_in_hugging_faces_form_is_kept(client: Client, path: str) -> None:
    form = {"type": "regex", "value": "[ab]{3}"}
    (choice,) = (await post(client, path, **PATHS[path], response_format=form))["choices"]

    assert re.fullmatch("[ab]{3}", text_of(choice))
