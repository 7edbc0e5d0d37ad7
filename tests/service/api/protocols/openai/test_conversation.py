"""Items of a conversation, as `/v1/responses` takes them."""

from __future__ import annotations

import json

import pytest

from tests.service.api.conftest import Client, post
from tests.service.api.protocols.openai.conftest import (
    ASKED,
    RESPONSES,
    THOUGHT,
    TIME,
    refused,
)


@pytest.fixture
def client(responding: Client) -> Client:
    return responding


@pytest.mark.parametrize("stream", [False, True])
async def test_items_that_say_nothing_are_refused(client: Client, stream: bool) -> None:
    error = await refused(client, RESPONSES, input=[{"type": "reasoning", "id": "rs_1", "summary": []}], stream=stream)

    assert error["param"] == "input" and "send a message" in error["message"]


async def test_items_become_messages(client: Client) -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Is it"}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm.", "refusal": None}],
        },
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
    answer = await post(client, RESPONSES, **asked, input=items, max_output_tokens=5)
    chat = await post(client, "/v1/chat/completions", **asked, messages=messages, max_tokens=5)

    assert answer["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert answer["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


async def test_an_answer_goes_back_as_it_came(client: Client) -> None:
    thought = await post(client, RESPONSES, model="thinks", input="Dan", grammar=THOUGHT, temperature=0)
    call = {"tools": [TIME], "tool_choice": "required", "parallel_tool_calls": False, "seed": 1}
    called = await post(client, RESPONSES, model="marked", input=ASKED, **call)
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
    answer = await post(client, RESPONSES, **asked, input=items, max_output_tokens=9)
    chat = await post(client, "/v1/chat/completions", **asked, messages=messages, max_tokens=9)

    assert answer["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert answer["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
