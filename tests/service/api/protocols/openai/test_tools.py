"""Tools that a model is offered in OpenAI's protocol, and its calls of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TinyPackage
from tests.service.api.conftest import Client, OpenClient, events_of, post
from tests.service.api.protocols.openai.conftest import ids_of, refused, with_templates
from tests.service.tasks.tools import templates

PATH = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Is it raining in Oslo?"}]
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": CITY}}
BAD = {"type": "object", "properties": {"city": {"type": "string", "pattern": "(?!x)y"}}}
TIME = {"type": "function", "function": {"name": "time"}}
ONE: dict[str, Any] = {
    "messages": MESSAGES,
    "tools": [WEATHER, TIME],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "parallel_tool_calls": False,
    "max_tokens": 200,
    "seed": 1,
}


@pytest.fixture(scope="module")
def chat_folders(make_package: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tiny generator with templates of four kinds."""
    stories: TinyPackage = make_package("long_stories")
    sources = {
        "marked": templates.MARKED,
        "whole": templates.WHOLE,
        "plain": "{{ messages[0].content }}",
        "numbered": templates.NUMBERED,
    }
    return with_templates(stories, tmp_path_factory.mktemp("packages"), sources)


@pytest.fixture
async def client(open_client: OpenClient, chat_folders: list[Path]) -> AsyncIterator[Client]:
    async with open_client(*chat_folders, "stories") as client:
        yield client


@pytest.mark.parametrize("model", ["marked", "whole"])
async def test_a_model_calls_the_tool_that_it_has_to(client: Client, model: str) -> None:
    answer = await post(client, PATH, model=model, **ONE)
    (choice,) = answer["choices"]
    (call,) = choice["message"].pop("tool_calls")

    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None}
    assert choice["finish_reason"] == "tool_calls"
    assert call.keys() == {"id", "type", "function"} and call["type"] == "function" and call["id"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["city"] in ("Oslo", "Rome")
    assert answer["usage"]["completion_tokens"] > 0


async def test_chunks_have_the_calls_of_the_whole_answer(client: Client) -> None:
    body = {**ONE, "tool_choice": "required", "parallel_tool_calls": True, "n": 2, "max_tokens": 150}
    whole = await post(client, PATH, **body)
    chunks = await events_of(client, PATH, **body)

    first = [piece for chunk in chunks[:2] for piece in chunk["choices"]]
    assert [piece["index"] for piece in first] == [0, 1]  # or OpenAI's client fails
    assert [piece["delta"] for piece in first] == [{"role": "assistant", "content": ""}] * 2
    for choice in whole["choices"]:
        mine = [piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == choice["index"]]
        pieces = [call for piece in mine for call in piece["delta"].get("tool_calls", [])]
        begun = [call for call in pieces if "id" in call]
        assert [call["function"]["name"] for call in begun] == [
            call["function"]["name"] for call in choice["message"]["tool_calls"]
        ]
        assert [call["index"] for call in begun] == list(range(len(begun)))
        assert all(call.keys() == {"index", "function"} for call in pieces if call not in begun)
        for number, call in enumerate(choice["message"]["tool_calls"]):
            arguments = [each["function"]["arguments"] for each in pieces if each["index"] == number]
            assert "".join(arguments) == call["function"]["arguments"]
        assert mine[0]["delta"]["role"] == "assistant"
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        assert not any(piece["delta"].get("content") for piece in mine)


async def test_a_model_that_may_call_says_something_or_calls(client: Client) -> None:
    body: dict[str, Any] = {"messages": MESSAGES, "tools": [WEATHER], "temperature": 0, "max_tokens": 200}
    said, *also_said = [
        (await post(client, PATH, model=model, **body, seed=seed))["choices"][0]["message"]
        for model in ("marked", "whole")
        for seed in (1, 2)
    ]
    *_, brace = await ids_of(client, "whole", "{")
    (called,) = (await post(client, PATH, model="whole", **body, logit_bias={str(brace): 100}))["choices"]

    assert all(each["content"] and "tool_calls" not in each for each in (said, *also_said))
    assert called["finish_reason"] == "tool_calls" and called["message"]["content"] is None


async def test_a_tool_that_is_not_to_be_called_is_not_told_of(client: Client) -> None:
    body = {"model": "marked", "messages": MESSAGES, "temperature": 0, "max_tokens": 5}
    plain = await post(client, "/generate", **body)
    unused = await post(client, "/generate", **body, tools=[WEATHER], tool_choice="none")
    named = {**ONE, "model": "marked", "tool_choice": {"name": "weather"}}
    ours, theirs = [
        await post(client, "/generate", **each) for each in (named, {**named, "tool_choice": ONE["tool_choice"]})
    ]

    flat = await post(client, "/generate", **{**named, "tool_choice": {"type": "function", "name": "weather"}})

    assert unused == plain
    assert ours == theirs == flat


async def test_calls_and_answers_of_tools_go_on_with_the_conversation(client: Client) -> None:
    call = (await post(client, PATH, **ONE))["choices"][0]["message"]
    answer = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "rain"}
    more = await post(client, PATH, **{**ONE, "messages": [*MESSAGES, call, answer], "tool_choice": "auto"})
    fewer = await post(client, PATH, **{**ONE, "tool_choice": "auto"})

    assert more["usage"]["prompt_tokens"] > fewer["usage"]["prompt_tokens"]


@pytest.mark.parametrize("cut", [{"max_tokens": 45}, {"stop": ["}"]}])
async def test_a_call_that_is_cut_says_so(client: Client, cut: dict[str, Any]) -> None:
    (choice,) = (await post(client, PATH, **{**ONE, **cut}))["choices"]
    chunks = await events_of(client, PATH, **{**ONE, **cut})
    (call,) = choice["message"]["tool_calls"]

    assert choice["finish_reason"] == chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert call["function"]["name"] == "weather" and not call["function"]["arguments"].endswith("}")


async def test_ids_of_calls_are_short_and_differ_also_where_a_caller_repeats_its_own(client: Client) -> None:
    headers = {"X-Request-ID": "trace-" + "1" * 100}
    answers = [await client.post(PATH, json={"model": "marked", **ONE}, headers=headers) for _ in range(2)]
    ids = [answer.json()["choices"][0]["message"]["tool_calls"][0]["id"] for answer in answers]

    assert len(set(ids)) == 2 and max(map(len, ids)) <= 40


async def test_some_of_the_tools_can_be_allowed(client: Client) -> None:
    one = {"type": "function", "function": {"name": "weather"}}
    some = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [one]}}
    body = {**ONE, "model": "marked"}
    alone = await post(client, PATH, **{**body, "tools": [WEATHER], "tool_choice": "required"})
    allowed = await post(client, PATH, **{**body, "tool_choice": some})

    assert called(allowed) == called(alone)


def called(answer: dict[str, Any]) -> dict[str, str]:
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    function: dict[str, str] = call["function"]
    return function


async def test_of_a_call_whose_name_is_cut_nothing_is_said(client: Client) -> None:
    (choice,) = (await post(client, PATH, **{**ONE, "max_tokens": 9}))["choices"]

    assert choice["finish_reason"] == "length"
    assert choice["message"] == {"role": "assistant", "content": "", "refusal": None}


async def test_a_model_that_calls_says_no_content_in_its_chunks(client: Client) -> None:
    called = await events_of(client, PATH, **ONE)
    plain = await events_of(client, PATH, messages=MESSAGES, max_tokens=5)

    assert all(
        "content" not in chunk["choices"][0]["delta"] for chunk in called if chunk["choices"][0]["finish_reason"]
    )
    assert all("tool_calls" not in chunk["choices"][0]["delta"] for chunk in plain)


async def test_generate_reads_calls_where_it_is_told_to(client: Client) -> None:
    body: dict[str, Any] = {**ONE, "model": "marked", "tool_choice": {"name": "weather"}}
    (read,) = (await post(client, "/generate", **body, logprobs=0))["choices"]
    *events, _ = await events_of(client, "/generate", **body)
    pieces = [piece for event in events for piece in event.get("tool_calls", [])]

    assert read["text"] == "" and read["tool_calls"][0]["name"] == "weather"
    assert "".join(token["text"] for token in read["logprobs"]).startswith('<tool_call>\n{"name": "weather"')
    assert [piece.get("name") for piece in pieces] == ["weather", *[None] * (len(pieces) - 1)]
    assert "".join(piece["arguments"] for piece in pieces) == read["tool_calls"][0]["arguments"]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"tools": []}, "tool_choice", "send tools, too"),
        ({"tools": [TIME]}, "tool_choice", "'weather' is none of the tools"),
        ({"tools": [WEATHER, {"type": "custom"}]}, "tools", "tools.1: a tool should be"),
        ({"tool_choice": "any"}, "tool_choice", "'required'"),
        ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice", "a valid string"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "a valid string"),
        ({"tool_choice": {"type": "function", "function": 7}}, "tool_choice", "'required'"),
        (
            {"tools": [{**WEATHER, "function": {"name": "weather", "parameters": BAD}}]},
            "tools",
            "parameters of 'weather': ",
        ),
        ({"response_format": {"type": "json_object"}}, "response_format", "response_format goes with no tools"),
        ({"model": "plain"}, "tools", "send a JSON schema"),
        ({"model": "numbered"}, "tools", "does not show how calls"),
        ({"functions": [{"name": "f"}]}, "functions", "send tools and tool_choice"),
    ],
)
async def test_what_cannot_be_called_is_refused_by_name(
    client: Client, fields: dict[str, Any], param: str, message: str
) -> None:
    error = await refused(client, PATH, **{**ONE, **fields})

    assert error["param"] == param and message in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None, "prompt": "x"}, "tool_choice"),
        ({"messages": None, "prompt": "x", "model": "stories"}, "tool_choice"),
        ({"model": "stories"}, "messages"),
        ({"grammar": {"choice": ["a"]}}, "grammar"),
        ({"echo": True}, "echo"),
        ({"tools": None}, "tool_choice"),
    ],
)
async def test_generate_refuses_what_goes_with_no_calls(client: Client, fields: dict[str, Any], param: str) -> None:
    response = await client.post("/generate", json={**ONE, "tool_choice": "auto", "model": "marked", **fields})

    assert response.status_code == 422 and response.json()["error"]["param"] == param
