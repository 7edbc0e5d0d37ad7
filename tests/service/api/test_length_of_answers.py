"""How long an output becomes that nobody limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakePackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post
from tests.service.api.protocols.openai.conftest import with_templates

CHAT = "/v1/chat/completions"
POSITIONS = 512
SAID: dict[str, Any] = {"messages": [{"role": "user", "content": "Dan"}], "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def folder(make_package: MakePackage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that answers."""
    (folder,) = with_templates(
        make_package("long_stories"), tmp_path_factory.mktemp("packages"), {"chat": "{{ messages[0].content }}"}
    )
    return folder


@pytest.fixture
async def client(open_client: OpenClient, folder: Path) -> AsyncIterator[Client]:
    async with open_client(folder) as client:
        yield client


async def test_an_answer_goes_on_until_the_model_ends_it_or_its_context_does(client: Client) -> None:
    usages = [(await post(client, path, **SAID))["usage"] for path in (CHAT, "/generate")]
    ended = await post(client, "/v1/responses", input="Dan", temperature=0)

    assert [usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages] == [POSITIONS, POSITIONS]
    assert ended["status"] == "completed" or ended["usage"]["total_tokens"] == POSITIONS


async def test_a_text_is_continued_by_128_tokens(client: Client) -> None:
    for path in ("/v1/completions", "/generate"):
        answer = await post(client, path, prompt="Dan", ignore_eos=True, temperature=0)
        assert answer["usage"]["completion_tokens"] == 128, path


async def test_an_answer_leaves_memory_for_those_of_all_other_slots_unless_more_is_asked_for(
    open_client: OpenClient, folder: Path
) -> None:
    async with open_client(folder, max_slots=16, kv_cache_mib=1) as client:  # 4,096 tokens of 256 bytes
        usage = (await post(client, CHAT, **SAID))["usage"]
        searched = (await post(client, "/generate", **SAID | {"temperature": None}, beam_size=2))["usage"]
        asked = (await post(client, CHAT, **SAID, max_tokens=400))["usage"]

    assert usage["completion_tokens"] == 4096 // 16
    assert searched["completion_tokens"] == 128  # as any text
    assert asked["completion_tokens"] == 400


async def test_an_answer_is_no_longer_than_its_log_probabilities_may_be(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.tasks.decoding_defaults.MAX_LOGPROBS", 600)
    answer = await post(client, CHAT, **SAID, logprobs=True, top_logprobs=2)

    assert answer["usage"]["completion_tokens"] == 600 // 3


async def test_what_the_package_says_comes_first(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    says = {"chat_template": {"source": "{{ messages[0].content }}"}, "generation": {"max_tokens": 150}}
    async with open_client(with_manifest(make_package("long_stories"), tmp_path / "short", **says)) as client:
        answer = await post(client, CHAT, **SAID)

    assert answer["usage"]["completion_tokens"] == 150
