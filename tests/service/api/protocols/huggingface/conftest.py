from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakePackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, lines_of, post

MODELS = ("sentiment", "embed", "entailment", "entities", "answers", "encoder", "stories", "fashion")
SUMMARY = {"summarize": {"prefix": "In short: "}}


@pytest.fixture
async def client(open_client: OpenClient, make_package: MakePackage, tmp_path: Path) -> AsyncIterator[Client]:
    translate = with_manifest(make_package("translate"), tmp_path / "translate", task_prompts=SUMMARY)
    async with open_client(*MODELS, translate) as client:
        yield client


async def piped(client: Client, pipeline: str, inputs: Any, **parameters: Any) -> Any:
    return await post(client, f"/pipeline/{pipeline}", inputs=inputs, parameters=parameters)


async def pieces_of(client: Client, path: str, **body: Any) -> list[Any]:
    """Return the events of a stream, which ends without a word, as TGI's does."""
    return [json.loads(line) for line in await lines_of(client, path, **body)]
