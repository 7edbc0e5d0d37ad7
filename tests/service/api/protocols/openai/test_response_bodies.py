"""What `/v1/responses` is asked, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response as SdkResponse

from tests.service.api.conftest import Client, post
from tests.service.api.protocols.openai.conftest import (
    ASKED,
    CITY,
    RESPONSES,
    TIME,
    WEATHER,
    refused,
)

SOME = {"type": "allowed_tools", "tools": [{"type": "function", "name": "weather"}]}


@pytest.fixture
def client(responding: Client) -> Client:
    return responding


async def test_one_function_or_some_of_them_can_be_asked_for(client: Client) -> None:
    body = {"model": "marked", "input": ASKED, "tools": [WEATHER, TIME], "parallel_tool_calls": False, "seed": 3}
    function = {"type": "function", "name": "weather"}
    named = await post(client, RESPONSES, **body, tool_choice=function)
    some = {**SOME, "mode": "required", "tools": [function, function]}
    allowed = await post(client, RESPONSES, **body, tool_choice=some)
    unused = await post(client, RESPONSES, **{**body, "tools": [{"type": "web_search"}]}, tool_choice="none")

    for answer, choice, tools in (
        (named, function, [WEATHER, TIME]),
        (allowed, some, [WEATHER, TIME]),
        (unused, "none", [{"type": "web_search"}]),
    ):
        SdkResponse.model_validate(answer)
        assert (answer["tool_choice"], answer["tools"]) == (choice, tools)
    assert named["output"][0]["name"] == allowed["output"][0]["name"] == "weather"
    assert json.loads(named["output"][0]["arguments"])["city"] in ("Oslo", "Rome")
    error = await refused(client, RESPONSES, **body, tool_choice={**some, "tools": [{"type": "function", "name": "x"}]})
    assert (error["param"], error["message"]) == ("tool_choice", "tool_choice: no tool is called 'x'")


async def test_json_is_as_its_schema_describes_it(client: Client) -> None:
    form = {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}
    answer = await post(client, RESPONSES, model="plain", input="Hi", text={"format": form, "verbosity": "medium"})
    anything = await post(
        client, RESPONSES, model="plain", input="Hi", text={"format": {"type": "json_object"}}, seed=5
    )

    assert json.loads(answer["output"][0]["content"][0]["text"])["city"] in ("Oslo", "Rome")
    assert answer["text"]["format"]["schema"] == CITY
    assert anything["output"][0]["content"][0]["text"].lstrip().startswith("{")


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "no response is kept here"),
        ({"conversation": "c"}, "conversation", "no response is kept here"),
        ({"background": True}, "background", "not made in the background"),
        ({"n": 2}, "n", "there is one answer"),
        ({"response_format": {"type": "json_object"}}, "response_format", "send it as text.format"),
        ({"max_completion_tokens": 1}, "max_completion_tokens", "send max_output_tokens"),
        ({"logprobs": True}, "logprobs", "send top_logprobs"),
        ({"metadata": {"a": "b" * 513}}, "metadata", "at most 512 characters"),
        ({"metadata": {str(i): "b" for i in range(17)}}, "metadata", "at most 16 items, not 17"),
        ({"tools": [{**WEATHER, "description": "a" * 262_144}]}, "tools", "characters; the limit is 262144"),
        ({"model": "marked", "tools": [{**WEATHER, "name": ""}]}, "tools", "tools.0.name"),
        ({"model": "marked", "tools": [{**WEATHER, "name": ["x"]}], "tool_choice": SOME}, "tool_choice", "no tool is"),
        (
            {"tool_choice": {**SOME, "tools": [{"type": "function", "name": {}}]}},
            "tool_choice",
            "tool_choice.tools.0.name",
        ),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "tool_choice.name"),
        ({"tools": [WEATHER]}, "tools", "text.format"),
        ({"tools": [{"type": "web_search"}]}, "tools", "one is of type 'web_search', which is not run here"),
        ({"reasoning": {"effort": "high"}}, "reasoning", "reasoning.effort is not supported"),
        (
            {"text": {"format": {"type": "json_schema"}}},
            "text",
            "has the type json_schema, but no schema",
        ),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "x"}}}}, "text", "text.format"),
        (
            {"text": {"format": {"type": "json_object"}}, "grammar": {"choice": ["a"]}},
            "text",
            "send either text.format or grammar",
        ),
        ({"text": {"verbosity": "high"}}, "text", "text.verbosity: "),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater than or equal to 1"),
        ({"max_output_tokens": 2**31}, "max_output_tokens", "max_output_tokens: Input should be less than"),
        ({"input": "word " * 5000}, "input", "input"),
        ({"input": []}, "input", "at least 1 item"),
        (
            {"input": [{"type": "item_reference", "id": "x"}]},
            "input",
            "an item_reference cannot be read: no",
        ),
        ({"input": [{"type": "mcp_call", "id": "x"}]}, "input", "input.0.type: Input should be 'message'"),
        ({"input": [{"id": "msg_1"}]}, "input", "an item_reference cannot be read: no response is kept here"),
        ({"input": [{"id": "msg_1", "type": None}]}, "input", "an item_reference cannot be read"),
        ({"input": [{}]}, "input", "input.0: an item of type message has no content"),
        ({"input": [{"role": "user", "contents": "a"}]}, "input", "an item of type message has no content"),
        ({"input": [{"type": "function_call", "call_id": "1"}]}, "input", "an item of type function_call has no name"),
        ({"input": [{"type": "function_call_output", "call_id": "1"}]}, "input", "function_call_output has no output"),
        ({"input": [{"content": [{"type": "input_text", "txt": "a"}]}]}, "input", "of type input_text has no text"),
        ({"input": [{"type": "custom_tool_call", "name": "x"}]}, "input", "input.0.type: custom_tool_call is not read"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input",
            "input.0.content.0.type: Input should be 'input_text'",
        ),
    ],
)
async def test_what_is_not_done_here_is_refused_by_its_name(
    client: Client, body: dict[str, Any], param: str, message: str
) -> None:
    error = await refused(client, RESPONSES, **{"model": "plain", "input": "Hi", **body})

    assert error["param"] == param
    assert message in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"metadata": {"a": "\ud800"}}, "metadata"),
        ({"instructions": "\ud800"}, "instructions"),
        ({"input": [{"content": "\ud800"}]}, "input"),
        ({"text": {"format": {"type": "json_schema", "name": "\ud800", "schema": {}}}}, "text"),
        ({"text": {"format": {"type": "json_schema", "schema": {"title": "\ud800"}}}}, "text"),
        ({"tools": [{**WEATHER, "description": "\ud800"}]}, "tools"),
    ],
)
async def test_half_a_character_is_refused_wherever_it_is(client: Client, body: dict[str, Any], param: str) -> None:
    content = json.dumps({"model": "plain", "input": "Hi", **body})
    response = await client.post(RESPONSES, content=content, headers={"Content-Type": "application/json"})

    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_too_many_log_probabilities_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.tasks.generate.MAX_LOGPROBS", 10)
    body = {"model": "plain", "input": "Hi", "top_logprobs": 2, "max_output_tokens": 4}
    response = await client.post(RESPONSES, json=body)
    error = response.json()["error"]

    assert response.status_code == 413
    assert error["param"] == "top_logprobs" and error["message"].startswith("top_logprobs: the log probabilities")


async def test_a_model_without_a_template_does_not_converse(client: Client) -> None:
    error = await refused(client, RESPONSES, model="stories", input="Hi")

    assert error["message"] == "model 'stories' has no chat template; send a prompt (/v1/completions, /generate)"


async def test_an_error_before_a_stream_begins_is_an_ordinary_answer(client: Client) -> None:
    error = await refused(client, RESPONSES, model="plain", input="word " * 5000, stream=True)

    assert error["param"] == "input"
