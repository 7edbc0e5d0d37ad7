from __future__ import annotations

from typing import Any

import pytest

from service import __version__
from tests.service.api.conftest import Client, OpenClient, events_of, post
from tests.service.api.protocols.openai.conftest import ids_of, refused

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Who is Dan?"}]
GREEDY: dict[str, Any] = {"max_tokens": 9, "temperature": 0}


async def test_a_conversation_goes_to_the_first_model_with_a_template(client: Client) -> None:
    answer = await post(client, "/v1/chat/completions", messages=MESSAGES, **GREEDY)
    native = await post(client, "/generate", model="chat", messages=MESSAGES, **GREEDY)

    assert answer["model"] == "chat" and answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    (choice,), (said,) = answer["choices"], native["choices"]
    assert choice["message"] == {"role": "assistant", "content": said["text"], "refusal": None}
    assert choice["finish_reason"] == said["finish_reason"]
    assert answer["usage"]["prompt_tokens"] == native["usage"]["prompt_tokens"]


async def test_content_may_come_in_parts_and_the_limit_under_its_newer_name(client: Client) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Who is"}, {"type": "refusal", "refusal": "Dan?"}]}]
    plain = [{"role": "user", "content": "Who is\nDan?"}]
    options = {"temperature": 0, "max_tokens": 100, "max_completion_tokens": 3}
    answers = [await post(client, "/v1/chat/completions", messages=each, **options) for each in (parts, plain)]

    assert answers[0]["choices"] == answers[1]["choices"]
    assert answers[0]["usage"]["completion_tokens"] == 3


async def test_chunks_are_the_whole_answer_in_pieces(client: Client) -> None:
    body = {"messages": MESSAGES, "n": 2, "seed": 1, "max_tokens": 12, "logprobs": True, "top_logprobs": 2}
    whole = await post(client, "/v1/chat/completions", **body)
    *chunks, last = await events_of(client, "/v1/chat/completions", **body, stream_options={"include_usage": True})

    assert last["choices"] == [] and last["usage"] == whole["usage"]
    assert {each["system_fingerprint"] for each in [whole, *chunks, last]} == {f"trifold-{__version__}"}
    assert all(chunk["usage"] is None for chunk in chunks)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    for choice in whole["choices"]:
        mine = [piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == choice["index"]]
        assert [piece["delta"].get("role") for piece in mine] == ["assistant", *[None] * (len(mine) - 1)]
        assert "".join(piece["delta"]["content"] for piece in mine) == choice["message"]["content"]
        assert [piece["finish_reason"] for piece in mine] == [*[None] * (len(mine) - 1), choice["finish_reason"]]
        tokens = [token for piece in mine if piece["logprobs"] for token in piece["logprobs"]["content"]]
        assert tokens == choice["logprobs"]["content"]


async def test_log_probabilities_have_the_tokens_bytes(client: Client) -> None:
    body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **GREEDY}
    tokens = (await post(client, "/v1/chat/completions", **body))["choices"][0]["logprobs"]["content"]
    native = await post(client, "/generate", model="chat", messages=MESSAGES, logprobs=3, **GREEDY)
    *_, half = await ids_of(client, "chat", "é")
    body = {"messages": MESSAGES, "logprobs": True, "max_tokens": 1, "logit_bias": {str(half): 100}}
    (part,) = (await post(client, "/v1/chat/completions", **body))["choices"][0]["logprobs"]["content"]

    assert [token["logprob"] for token in tokens] == [each["logprob"] for each in native["choices"][0]["logprobs"]]
    for token in tokens:
        assert len(token["top_logprobs"]) == 3 and token["logprob"] == token["top_logprobs"][0]["logprob"]
        if "\ufffd" not in token["token"]:
            assert bytes(token["bytes"]).decode() == token["token"]
        for other in token["top_logprobs"]:
            assert "\ufffd" in other["token"] or other["bytes"] == list(other["token"].encode())
    assert part["token"] == "\ufffd" and part["bytes"] == [0xA9]  # the second half of é


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"best_of": 2}, "best_of"),
        ({"regex": "[0-9]+"}, "regex"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
        ({"model": "stories"}, "model"),
        ({"echo": True}, "echo"),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "thinking"),
        ({"reasoning": {"max_tokens": 9}}, "reasoning"),
        ({"thinking_token_budget": 9}, "thinking_token_budget"),
        ({"num_beams": 4}, "num_beams"),
        ({"stop_regex": "[.]"}, "stop_regex"),
        ({"lora_path": "mine"}, "lora_path"),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "Dan is", "prefix": True}]}, "messages"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
    ],
)
async def test_what_is_not_done_is_refused_by_name(client: Client, fields: dict[str, Any], param: str) -> None:
    error = await refused(client, "/v1/chat/completions", **{"messages": MESSAGES, **GREEDY, **fields})

    assert error["param"] == param


async def test_fields_that_ask_for_nothing_are_passed_over(client: Client) -> None:
    harmless = {
        "tools": [],
        "tool_choice": "auto",
        "modalities": ["text"],
        "response_format": {"type": "text"},
        "parallel_tool_calls": True,
        "store": True,
        "user": "me",
        "stop": None,
        "reasoning": {"summary": "auto"},
        "thinking": {},
        "think": "",
        "do_sample": True,
        "num_beams": 1,
        "max_length": 99,
    }
    plain = await post(client, "/v1/chat/completions", messages=MESSAGES, **GREEDY)
    more = await post(client, "/v1/chat/completions", messages=MESSAGES, **GREEDY, **harmless)

    assert more["choices"] == plain["choices"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_whether_a_model_is_to_think_may_be_said_as_other_servers_take_it(responding: Client, path: str) -> None:
    conversation = {"messages": MESSAGES} if "chat" in path else {"input": MESSAGES}
    read = []
    not_to: list[dict[str, Any]] = [
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"enabled": False}},
        {"thinking": {"type": "disabled"}},
        {"think": False},
        {"reasoning": False},
        {"thinking": "none"},
    ]
    for said in ({}, *not_to):
        usage = (await post(responding, path, model="switched", **conversation, **said))["usage"]
        read.append(usage.get("prompt_tokens") or usage["input_tokens"])

    assert read[0] < read[1] and set(read[1:]) == {read[1]}


async def test_that_no_token_is_to_be_drawn_may_be_said_as_hugging_face_does(client: Client) -> None:
    greedy = await post(client, "/v1/chat/completions", messages=MESSAGES, max_tokens=8, temperature=0)
    told: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 8, "temperature": 5, "do_sample": False}

    assert (await post(client, "/v1/chat/completions", **told))["choices"] == greedy["choices"]
    searched = await post(client, "/v1/chat/completions", **told, beam_size=2)
    assert searched["choices"][0]["message"]["content"]


async def test_a_completion_does_not_think_and_may_be_told_so(client: Client) -> None:
    await post(client, "/v1/completions", prompt="Once", **GREEDY, enable_thinking=False)
    error = await refused(client, "/v1/completions", prompt="Once", **GREEDY, enable_thinking=True)

    assert error["param"] == "enable_thinking" and "/v1/chat/completions" in error["message"]


async def test_tools_that_are_not_to_be_used_are_passed_over(client: Client) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    plain = await post(client, "/v1/chat/completions", messages=MESSAGES, **GREEDY)
    unused = await post(client, "/v1/chat/completions", messages=MESSAGES, **GREEDY, tools=tools, tool_choice="none")

    assert unused["choices"] == plain["choices"]


async def test_a_top_p_of_nothing_leaves_the_likeliest_token(client: Client) -> None:
    greedy = {**GREEDY, "temperature": 1, "top_p": 0}
    plain = await post(client, "/v1/chat/completions", messages=MESSAGES, **GREEDY)
    likeliest = await post(client, "/v1/chat/completions", messages=MESSAGES, **greedy)

    assert likeliest["choices"] == plain["choices"]


async def test_without_a_template_there_is_no_model_for_chat(open_client: OpenClient) -> None:
    async with open_client("stories") as client:
        response = await client.post("/v1/chat/completions", json={"messages": MESSAGES})

    assert response.status_code == 404
    assert "there is no model for chat here" in response.json()["error"]["message"]


async def test_hugging_faces_client_converses_at_a_models_address(client: Client) -> None:
    body = {"messages": MESSAGES, **GREEDY}
    named = await post(client, "/models/chat/v1/chat/completions", **body, model="chat")
    placeholder = await post(client, "/models/chat/v1/chat/completions", **body, model="dummy")
    address = await post(client, "/models/chat/v1/chat/completions", **body, model="http://service/models/chat")
    whole = await post(client, "/v1/chat/completions", **body, model="http://service")
    other = await client.post("/models/chat/v1/chat/completions", json={**body, "model": "other"})

    assert placeholder["choices"] == named["choices"] and placeholder["model"] == "chat"
    assert address["choices"] == named["choices"] and address["model"] == "chat"
    assert whole["model"] == "chat"
    assert other.status_code == 404
