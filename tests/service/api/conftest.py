from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from model.package import PackageTokenizer
from model.package.tokenizer import Encoding
from service.api.app import create_app
from service.metrics import Metrics
from service.models_file import ModelSettings
from service.replica_groups import names_by_alias
from service.settings import Limits, Settings
from service.tasks.loading import load_task
from tests.conftest import MakePackage

Client = httpx.AsyncClient
OpenClient = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def open_client(make_package: MakePackage) -> OpenClient:
    """Return a client of the API over tiny models, named or in folders, in this process."""

    @asynccontextmanager
    async def open_client(
        *names: str | Path, settings: dict[str, Any] | None = None, **model: Any
    ) -> AsyncIterator[Client]:
        chosen, metrics = Settings(**(settings or {})), Metrics()
        chosen_models = names or ("sentiment", "embed", "stories", "translate")
        folders = [make_package(name).folder if isinstance(name, str) else name for name in chosen_models]
        models = [ModelSettings(package=folder, threads=1, **model) for folder in folders]
        tasks = [load_task(each, chosen.limits, metrics) for each in models]
        aliases = names_by_alias(models) if "aliases" in model else {}
        app = create_app(tasks, chosen, metrics, aliases=aliases)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                yield client
        finally:
            for task in tasks:
                await task.close()

    return open_client


@pytest.fixture
async def client(open_client: OpenClient) -> AsyncIterator[Client]:
    """A client of a tiny model for each task."""
    async with open_client() as client:
        yield client


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that a tokenizer reads, as it is read."""
    texts: list[str] = []
    encode = PackageTokenizer.encode

    def watched(tokenizer: PackageTokenizer, *given: str, **how: Any) -> Encoding:
        texts.extend(given)
        return encode(tokenizer, *given, **how)

    monkeypatch.setattr(PackageTokenizer, "encode", watched)
    return texts


@pytest.fixture
def computed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the API know of what was computed by the answers alone, as a gateway does, whose models are elsewhere."""
    monkeypatch.setattr("service.engine.admission.SPENDING", ContextVar("elsewhere", default=None))


def limits(**values: Any) -> dict[str, Any]:
    """Return settings with these limits."""
    return {"limits": Limits(**values)}


async def post(client: Client, path: str, **body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def events_of(client: Client, path: str, **body: Any) -> list[Any]:
    lines = await lines_of(client, path, **body)
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def lines_of(client: Client, path: str, **body: Any) -> list[str]:
    """Return what the events of a stream hold."""
    response = await client.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]


def series(text: str) -> dict[str, float]:
    """Return the samples of a page, as name{label="value",…} without the prefix."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name.removeprefix('trifold_')}{{{labels}}}"] = sample.value
    return found
