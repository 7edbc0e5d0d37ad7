"""OpenAI's /v1/responses: answers as items, and streams of events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from service.errors import InternalError
from service.schemas import GenerateEvent
from service.tasks.task import LocalTask
from tests.service.api.conftest import Client, lines_of, post
from tests.service.api.protocols.openai.conftest import (
    ASKED,
    RESPONSES,
    THOUGHT,
    TIME,
    WEATHER,
    refused,
)

CHAT_TOOLS = [
    {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
    for tool in (WEATHER, TIME)
]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture
def client(responding: Client) -> Client:
    return responding


async def events(client: Client, **body: Any) -> list[dict[str, Any]]:
    """Return a stream's events, each of which is named as its type is."""
    found = []
    for lines in await lines_of(client, RESPONSES, **body):
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
    answer = await post(client, RESPONSES, **asked, input="Hi", instructions="Be kind.", max_output_tokens=9)
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
    answer = await post(client, RESPONSES, input="Hi", grammar={"choice": ["ok"]}, metadata={"of": "me"})

    assert (answer["status"], answer["incomplete_details"]) == ("completed", None)
    assert answer["completed_at"] >= answer["created_at"]
    assert answer["output"][0]["content"][0]["text"] == "ok"
    assert answer["metadata"] == {"of": "me"}


async def test_a_function_is_called_and_events_have_what_the_whole_answer_has(client: Client) -> None:
    body = {
        "model": "marked",
        "input": ASKED,
        "tools": [WEATHER, TIME],
        "tool_choice": "required",
        "max_output_tokens": 150,
        "seed": 1,
    }
    whole = await post(client, RESPONSES, **body)
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


async def test_events_of_a_text_have_what_the_whole_answer_has(client: Client) -> None:
    body = {"model": "plain", "input": "Hi", "max_output_tokens": 12, "seed": 2, "top_logprobs": 2}
    whole = await post(client, RESPONSES, **body)
    found = await events(client, **body)

    scores = whole["output"][0]["content"][0]["logprobs"]
    assert len(scores) == 12 and all(len(score["top_logprobs"]) == 2 for score in scores)
    deltas = [event for event in found if event["type"] == "response.output_text.delta"]
    assert [score for event in deltas for score in event["logprobs"]] == scores
    check_stream(found, whole)


async def test_reasoning_is_an_item_of_its_own(client: Client) -> None:
    body = {"model": "thinks", "input": "Dan", "grammar": THOUGHT, "temperature": 0}
    whole = await post(client, RESPONSES, **body)
    found = await events(client, **body)

    SdkResponse.model_validate(whole)
    thought, said = whole["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}] and thought["summary"] == []
    assert said["content"][0]["text"] == "Yes."
    check_stream(found, whole)


async def test_log_probabilities_are_those_of_the_text(client: Client) -> None:
    body = {"model": "thinks", "input": "Dan", "grammar": THOUGHT, "temperature": 0, "top_logprobs": 1}
    whole = await post(client, RESPONSES, **body)
    error = await refused(client, RESPONSES, model="marked", input=ASKED, tools=[WEATHER], top_logprobs=1)

    (said,) = whole["output"]  # with the reasoning, whose tokens have log probabilities, too
    (content,) = said["content"]
    assert (
        "".join(score["token"] for score in content["logprobs"]) == content["text"] == "<think>\nHm.\n</think>\n\nYes."
    )
    check_stream(await events(client, **body), whole)
    assert error["message"] == "top_logprobs: calls have no log probabilities; leave out either these or tools"
    included = await refused(
        client, RESPONSES, model="marked", input=ASKED, tools=[WEATHER], include=["message.output_text.logprobs"]
    )
    assert included["param"] == "include" and included["message"].startswith("include: calls")


async def test_log_probabilities_come_where_they_are_included(client: Client) -> None:
    body = {"model": "plain", "input": "Hi", "max_output_tokens": 2}
    answer = await post(
        client, RESPONSES, **body, include=["message.output_text.logprobs", "reasoning.encrypted_content"]
    )

    scores = answer["output"][0]["content"][0]["logprobs"]
    assert [score["top_logprobs"] for score in scores] == [[], []]


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
