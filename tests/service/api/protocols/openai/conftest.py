from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient
from tests.service.tasks.tools import templates

TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"

RESPONSES = "/v1/responses"
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "weather", "description": "Tells it.", "parameters": CITY, "strict": True}
TIME = {"type": "function", "name": "time"}
ASKED = "Is it raining in Oslo?"
THOUGHT = {"regex": "<think>\\nHm[.]\\n</think>\\n\\nYes[.]"}
# Shows every field of each message.
SHOWING = (
    "{% for message in messages %}[{{ message.role }}|{{ message.content or '' }}|"
    "{{ message.reasoning_content or '' }}|"
    "{% for call in message.tool_calls or [] %}{{ call.id }} {{ call.function.name }}"
    " {{ call.function.arguments }};{% endfor %}|{{ message.tool_call_id or '' }} {{ message.name or '' }}]{% endfor %}"
)


@pytest.fixture(scope="module")
def chat_folder(make_package: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny generator with a template."""
    stories: TinyPackage = make_package("stories")
    return with_manifest(stories, tmp_path_factory.mktemp("packages") / "chat", chat_template={"source": TEMPLATE})


@pytest.fixture
async def client(open_client: OpenClient, chat_folder: Path) -> AsyncIterator[Client]:
    """A client of tiny models, of which the second generator has a chat template."""
    async with open_client("embed", "stories", chat_folder) as client:
        yield client


def with_templates(package: TinyPackage, folder: Path, sources: dict[str, str]) -> list[Path]:
    """Return a package's copies in a folder, each with another chat template, after which it is named."""
    return [with_manifest(package, folder / name, chat_template={"source": source}) for name, source in sources.items()]


@pytest.fixture(scope="module")
def responding_folders(make_package: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tiny generator with templates of several kinds."""
    thinks = "{{ messages[0].content.split('</think>')[-1] }}"
    switched = TEMPLATE + "{% if enable_thinking is defined %} {{ enable_thinking }}{% endif %}"
    sources = {
        "plain": TEMPLATE,
        "marked": templates.MARKED,
        "showing": SHOWING,
        "thinks": thinks,
        "switched": switched,
    }
    return with_templates(make_package("long_stories"), tmp_path_factory.mktemp("packages"), sources)


@pytest.fixture
async def responding(open_client: OpenClient, responding_folders: list[Path]) -> AsyncIterator[Client]:
    """A client of generators that answer `/v1/responses`, and of one that does not."""
    async with open_client(*responding_folders, "stories") as client:
        yield client


async def refused(client: Client, path: str, **body: Any) -> dict[str, Any]:
    """Return the error of a request that is wrong, in OpenAI's form."""
    response = await client.post(path, json=body)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


async def ids_of(client: Client, model: str, text: str) -> list[int]:
    response = await client.post("/tokenize", json={"model": model, "input": text})
    return [token["id"] for token in response.json()["results"][0]]
