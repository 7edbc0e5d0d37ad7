"""OpenAI's /v1/responses: conversations as items, answers as items, and streams of events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from service.errors import InternalError
from service.schemas import GenerateEvent
from service.tasks.task import LocalTask
from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, lines_of, post
from tests.service.api.protocols.openai.conftest import TEMPLATE, refused
from tests.service.tasks.tools import templates

PATH = "/v1/responses"
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "weather", "description": "Tells it.", "parameters": CITY, "strict": True}
TIME = {"type": "function", "name": "time"}
CHAT_TOOLS = [
    {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
    for tool in (WEATHER, TIME)
]
SOME = {"type": "allowed_tools", "tools": [{"type": "function", "name": "weather"}]}
ASKED = "Is it raining in Oslo?"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
# Shows every field of each message.
SHOWING = (
    "{% for message in messages %}[{{ message.role }}|{{ message.content or '' }}|"
    "{{ message.reasoning_content or '' }}|"
    "{% for call in message.tool_calls or [] %}{{ call.id }} {{ call.function.name }}"
    " {{ call.function.arguments }};{% endfor %}|{{ message.tool_call_id or '' }} {{ message.name or '' }}]{% endfor %}"
)


@pytest.fixture(scope="module")
def folders(make_package: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tiny generator with templates of several kinds."""
    stories: TinyPackage = make_package("long_stories")
    thinks = "{{ messages[0].content.split('</think>')[-1] }}"
    sources = {"plain": TEMPLATE, "marked": templates.MARKED, "showing": SHOWING, "thinks": thinks}
    folder = tmp_path_factory.mktemp("packages")
    return [with_manifest(stories, folder / name, chat_template={"source": source}) for name, source in sources.items()]


@pytest.fixture
async def client(open_client: OpenClient, folders: list[Path]) -> AsyncIterator[Client]:
    async with open_client(*folders, "stories") as client:
        yield client


async def events(client: Client, **body: Any) -> list[dict[str, Any]]:
    """Return a stream's events, each of which is named as its type is."""
    found = []
    for lines in await lines_of(client, PATH, **body):
        name, data = lines.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if not body.get("top_logprobs"):  # of which pieces of characters have no bytes
            EVENT.validate_python(event)
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


async def test_a_text_is_answered_by_a_message(client: Client) -> None:
    asked = {"model": "plain", "temperature": 0}
    answer = await post(client, PATH, **asked, input="Hi", instructions="Be kind.", max_output_tokens=9)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    chat = await post(client, "/v1/chat/completions", **asked, messages=messages, max_tokens=9)

    SdkResponse.model_validate(answer)
    (message,) = answer["output"]
    (content,) = message["content"]
    assert content["text"] == chat["choices"][0]["message"]["content"]
    assert content["annotations"] == content["logprobs"] == []
    assert answer["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    assert answer["usage"]["output_tokens"] == 9
    assert (answer["status"], message["status"]) == ("incomplete", "incomplete")
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (answer["instructions"], answer["temperature"], answer["top_p"]) == ("Be kind.", 0, None)
    assert (answer["store"], answer["error"], answer["previous_response_id"]) == (False, None, None)


async def test_an_answer_that_has_ended_is_complete(client: Client) -> None:
    answer = await post(client, PATH, input="Hi", grammar={"choice": ["ok"]}, metadata={"of": "me"})

    assert (answer["status"], answer["incomplete_details"]) == ("completed", None)
    assert answer["completed_at"] >= answer["created_at"]
    assert answer["output"][0]["content"][0]["text"] == "ok"
    assert answer["metadata"] == {"of": "me"}


async def test_items_become_messages(client: Client) -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Is it"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "logprobs": None}],
        },
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city": "Oslo"}', "status": None},
        {"type": "function_call", "call_id": "b", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "a", "output": "rain"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "sun"}]},
        {"role": "assistant", "content": "It is."},
        {"role": "assistant", "content": "And it is not."},
        {"role": "user", "content": "Thanks."},
    ]
    calls = [
        {"id": key, "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}
        for key, city in (("a", "Oslo"), ("b", "Rome"))
    ]
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Is it"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "name": "weather", "content": "rain"},
        {"role": "tool", "tool_call_id": "b", "name": "weather", "content": "sun"},
        {"role": "assistant", "content": "It is."},
        {"role": "assistant", "content": "And it is not."},
        {"role": "user", "content": "Thanks."},
    ]
    asked = {"model": "showing", "temperature": 0}
    answer = await post(client, PATH, **asked, input=items, max_output_tokens=5)
    chat = await post(client, "/v1/chat/completions", **asked, messages=messages, max_tokens=5)

    assert answer["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert answer["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


async def test_an_answer_goes_back_as_it_came(client: Client) -> None:
    form = {"regex": "<think>\\nHm[.]\\n</think>\\n\\nYes[.]"}
    thought = await post(client, PATH, model="thinks", input="Dan", grammar=form, temperature=0)
    call = {"tools": [TIME], "tool_choice": "required", "parallel_tool_calls": False, "seed": 1}
    called = await post(client, PATH, model="marked", input=ASKED, **call)
    (function,) = called["output"]
    items = [
        *thought["output"],
        function,
        {"type": "function_call_output", "call_id": function["call_id"], "output": "5"},
    ]
    messages = [
        {
            "role": "assistant",
            "reasoning_content": "Hm.",
            "content": "Yes.",
            "tool_calls": [
                {
                    "id": function["call_id"],
                    "type": "function",
                    "function": {"name": "time", "arguments": function["arguments"]},
                }
            ],
        },
        {"role": "tool", "tool_call_id": function["call_id"], "name": "time", "content": "5"},
    ]
    asked = {"model": "showing", "temperature": 0}
    answer = await post(client, PATH, **asked, input=items, max_output_tokens=9)
    chat = await post(client, "/v1/chat/completions", **asked, messages=messages, max_tokens=9)

    assert answer["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert answer["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


async def test_a_function_is_called_and_events_have_what_the_whole_answer_has(client: Client) -> None:
    body = {
        "model": "marked",
        "input": ASKED,
        "tools": [WEATHER, TIME],
        "tool_choice": "required",
        "max_output_tokens": 150,
        "seed": 1,
    }
    whole = await post(client, PATH, **body)
    found = await events(client, **body)
    chat = await post(
        client,
        "/v1/chat/completions",
        model="marked",
        messages=[{"role": "user", "content": ASKED}],
        tools=CHAT_TOOLS,
        tool_choice="required",
        max_tokens=150,
        seed=1,
    )

    SdkResponse.model_validate(whole)
    calls = whole["output"]
    functions = [call["function"] for call in chat["choices"][0]["message"]["tool_calls"]]
    assert [{name: call[name] for name in ("name", "arguments")} for call in calls] == functions
    assert len({call["call_id"] for call in calls} | {call["id"] for call in calls}) == 2 * len(calls)
    assert whole["tools"] == [WEATHER, TIME] and whole["tool_choice"] == "required"
    check_stream(found, whole)


async def test_one_function_or_some_of_them_can_be_asked_for(client: Client) -> None:
    body = {"model": "marked", "input": ASKED, "tools": [WEATHER, TIME], "parallel_tool_calls": False, "seed": 3}
    function = {"type": "function", "name": "weather"}
    named = await post(client, PATH, **body, tool_choice=function)
    some = {**SOME, "mode": "required", "tools": [function, function]}
    allowed = await post(client, PATH, **body, tool_choice=some)
    unused = await post(client, PATH, **{**body, "tools": [{"type": "web_search"}]}, tool_choice="none")

    for answer, choice, tools in (
        (named, function, [WEATHER, TIME]),
        (allowed, some, [WEATHER, TIME]),
        (unused, "none", [{"type": "web_search"}]),
    ):
        SdkResponse.model_validate(answer)
        assert (answer["tool_choice"], answer["tools"]) == (choice, tools)
    assert named["output"][0]["name"] == allowed["output"][0]["name"] == "weather"
    assert json.loads(named["output"][0]["arguments"])["city"] in ("Oslo", "Rome")
    error = await refused(client, PATH, **body, tool_choice={**some, "tools": [{"type": "function", "name": "x"}]})
    assert (error["param"], error["message"]) == ("tool_choice", "tool_choice: no tool is called 'x'")


async def test_events_of_a_text_have_what_the_whole_answer_has(client: Client) -> None:
    body = {"model": "plain", "input": "Hi", "max_output_tokens": 12, "seed": 2, "top_logprobs": 2}
    whole = await post(client, PATH, **body)
    found = await events(client, **body)

    scores = whole["output"][0]["content"][0]["logprobs"]
    assert len(scores) == 12 and all(len(score["top_logprobs"]) == 2 for score in scores)
    deltas = [event for event in found if event["type"] == "response.output_text.delta"]
    assert [score for event in deltas for score in event["logprobs"]] == scores
    check_stream(found, whole)


async def test_reasoning_is_an_item_of_its_own(client: Client) -> None:
    form = {"regex": "<think>\nHm[.]\n</think>\n\nYes[.]"}
    body = {"model": "thinks", "input": "Dan", "grammar": form, "temperature": 0}
    whole = await post(client, PATH, **body)
    found = await events(client, **body)

    SdkResponse.model_validate(whole)
    thought, said = whole["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}] and thought["summary"] == []
    assert said["content"][0]["text"] == "Yes."
    check_stream(found, whole)


async def test_log_probabilities_are_those_of_the_text(client: Client) -> None:
    form = {"regex": "<think>\\nHm[.]\\n</think>\\n\\nYes[.]"}
    body = {"model": "thinks", "input": "Dan", "grammar": form, "temperature": 0, "top_logprobs": 1}
    whole = await post(client, PATH, **body)
    error = await refused(client, PATH, model="marked", input=ASKED, tools=[WEATHER], top_logprobs=1)

    (said,) = whole["output"]  # with the reasoning, whose tokens have log probabilities, too
    (content,) = said["content"]
    assert (
        "".join(score["token"] for score in content["logprobs"]) == content["text"] == "<think>\nHm.\n</think>\n\nYes."
    )
    check_stream(await events(client, **body), whole)
    assert error["message"] == "top_logprobs: calls have no log probabilities; leave out either these or tools"
    included = await refused(
        client, PATH, model="marked", input=ASKED, tools=[WEATHER], include=["message.output_text.logprobs"]
    )
    assert included["param"] == "include" and included["message"].startswith("include: calls")


async def test_log_probabilities_come_where_they_are_included(client: Client) -> None:
    body = {"model": "plain", "input": "Hi", "max_output_tokens": 2}
    answer = await post(client, PATH, **body, include=["message.output_text.logprobs", "reasoning.encrypted_content"])

    scores = answer["output"][0]["content"][0]["logprobs"]
    assert [score["top_logprobs"] for score in scores] == [[], []]


def check_stream(found: list[dict[str, Any]], whole: dict[str, Any]) -> None:
    """Check that a stream's events make a whole answer, in order, and that its last one has it."""
    first, second, *between, last = found
    assert (first["type"], second["type"]) == ("response.created", "response.in_progress")
    assert first["response"]["status"] == "in_progress" and first["response"]["output"] == []
    assert last["type"] == f"response.{whole['status']}"
    assert told(last["response"]) == told(whole)
    added = [event for event in between if event["type"] == "response.output_item.added"]
    done = [event for event in between if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == list(range(len(whole["output"])))
    assert [event["item"] for event in done] == last["response"]["output"]
    for place, item in enumerate(last["response"]["output"]):
        mine = [event for event in between if event["output_index"] == place]
        assert mine[0] is added[place] and mine[-1] is done[place]
        assert all(event["item_id"] == item["id"] for event in mine if "item_id" in event)
        text = "".join(event["delta"] for event in mine if event["type"].endswith(".delta"))
        assert text == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what is another in each."""
    own = {"id", "created_at", "completed_at"}
    items = [
        {name: value for name, value in item.items() if name not in ("id", "call_id")} for item in answer["output"]
    ]
    return {**{name: value for name, value in answer.items() if name not in own}, "output": items}


async def test_json_is_as_its_schema_describes_it(client: Client) -> None:
    form = {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}
    answer = await post(client, PATH, model="plain", input="Hi", text={"format": form, "verbosity": "medium"})
    anything = await post(client, PATH, model="plain", input="Hi", text={"format": {"type": "json_object"}}, seed=5)

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
    error = await refused(client, PATH, **{"model": "plain", "input": "Hi", **body})

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
    response = await client.post(PATH, content=content, headers={"Content-Type": "application/json"})

    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_too_many_log_probabilities_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.tasks.generate.MAX_LOGPROBS", 10)
    body = {"model": "plain", "input": "Hi", "top_logprobs": 2, "max_output_tokens": 4}
    response = await client.post(PATH, json=body)
    error = response.json()["error"]

    assert response.status_code == 413
    assert error["param"] == "top_logprobs" and error["message"].startswith("top_logprobs: the log probabilities")


async def test_a_model_without_a_template_does_not_converse(client: Client) -> None:
    error = await refused(client, PATH, model="stories", input="Hi")

    assert error["message"] == "model 'stories' is for generate, not for chat"


async def test_an_error_before_a_stream_begins_is_an_ordinary_answer(client: Client) -> None:
    error = await refused(client, PATH, model="plain", input="word " * 5000, stream=True)

    assert error["param"] == "input"


@pytest.mark.parametrize("error", [InternalError("no"), ZeroDivisionError()], ids=["told", "unforeseen"])
async def test_an_error_within_a_stream_is_its_last_event(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def breaks(*_: object) -> AsyncGenerator[GenerateEvent, None]:
        yield GenerateEvent(index=0, text="a")
        raise error

    monkeypatch.setattr(LocalTask, "stream", breaks)
    *_, delta, last = await events(client, model="plain", input="Hi")

    assert delta["delta"] == "a"
    assert (last["type"], last["code"]) == ("error", "internal_error")
    assert last["error"]["message"] == last["message"]  # which OpenAI's own clients raise
