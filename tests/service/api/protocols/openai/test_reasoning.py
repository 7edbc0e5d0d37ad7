"""What a model thinks before it answers, in OpenAI's protocol and in ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TinyPackage
from tests.service.api.conftest import Client, OpenClient, events_of, post
from tests.service.api.protocols.openai.conftest import with_templates

PATH = "/v1/chat/completions"
SOURCES = {
    "thinks": "{{ messages[0].content.split('</think>')[-1] }}",
    "opened": "{{ messages[0].content }}</think>{% if add_generation_prompt %}<think>\n{% endif %}",
    "chat": "{{ messages[0].content }}",
}
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Dan"}], "temperature": 0, "max_tokens": 40}
FORM = "<think>\nHm[.]\n</think>\n\nYes[.]"


@pytest.fixture(scope="module")
def chat_folders(make_package: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tiny generator with a template of a model that may reason, that always does, and that does not."""
    stories: TinyPackage = make_package("stories")
    return with_templates(stories, tmp_path_factory.mktemp("packages"), SOURCES)


@pytest.fixture
async def client(open_client: OpenClient, chat_folders: list[Path]) -> AsyncIterator[Client]:
    async with open_client(*chat_folders) as client:
        yield client


async def test_reasoning_comes_beside_the_content_whole_and_in_chunks(client: Client) -> None:
    body = {**BODY, "model": "thinks", "response_format": {"type": "regex", "value": FORM}}
    (choice,) = (await post(client, PATH, **body))["choices"]
    deltas = [chunk["choices"][0]["delta"] for chunk in await events_of(client, PATH, **body)]
    (other,) = (await post(client, PATH, **{**body, "model": "chat"}))["choices"]

    assert choice["message"] == {
        "role": "assistant",
        "content": "Yes.",
        "refusal": None,
        "reasoning_content": "Hm.",
    }
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."
    assert not any("reasoning_content" in delta and "content" in delta for delta in deltas)
    assert other["message"]["content"] == "<think>\nHm.\n</think>\n\nYes."  # of a model whose template knows of none
    assert "reasoning_content" not in other["message"]


async def test_what_has_log_probabilities_is_whole_unless_it_is_to_be_told_apart(client: Client) -> None:
    body = {**BODY, "model": "thinks", "response_format": {"type": "regex", "value": FORM}, "logprobs": True}
    (whole,) = (await post(client, PATH, **body))["choices"]
    (apart,) = (await post(client, PATH, **body, separate_reasoning=True))["choices"]

    assert "".join(token["token"] for token in whole["logprobs"]["content"]) == whole["message"]["content"]
    assert apart["message"]["content"] == "Yes."


async def test_generate_tells_reasoning_apart_where_it_is_told_to(client: Client) -> None:
    body = {**BODY, "model": "thinks", "grammar": {"regex": FORM}}
    (plain,) = (await post(client, "/generate", **body))["choices"]
    (apart,) = (await post(client, "/generate", **body, separate_reasoning=True))["choices"]

    assert plain["text"] == "<think>\nHm.\n</think>\n\nYes." and "reasoning" not in plain
    assert (apart["reasoning"], apart["text"]) == ("Hm.", "Yes.")


async def test_what_follows_an_opened_mark_is_reasoning_until_it_is_closed(client: Client) -> None:
    (apart,) = (await post(client, PATH, **BODY, model="opened"))["choices"]
    (together,) = (await post(client, PATH, **BODY, model="opened", separate_reasoning=False))["choices"]
    form = {"response_format": {"type": "regex", "value": "Yes[.]"}}
    (formed,) = (await post(client, PATH, **BODY, model="opened", **form))["choices"]

    assert apart["message"]["content"] == "" and apart["finish_reason"] == "length"
    assert apart["message"]["reasoning_content"].strip() == together["message"]["content"].strip() != ""
    assert formed["message"]["content"] == "Yes."  # a form is that of the answer


async def test_an_echo_is_not_told_apart(client: Client) -> None:
    response = await client.post("/generate", json={"prompt": "Dan", "echo": True, "separate_reasoning": True})

    assert response.status_code == 422 and response.json()["error"]["param"] == "echo"
