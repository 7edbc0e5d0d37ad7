from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient

TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


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
