from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from service.errors import NotReady
from service.schemas import ModelHealth
from service.tasks.task import LocalTask
from tests.service.api.conftest import OpenClient

Health = Callable[[], Awaitable[ModelHealth]]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let models tell by functions of ours how they are doing; others are well."""

    def tell(**healths: Health) -> None:
        async def health(task: LocalTask) -> ModelHealth:
            told = healths.get(task.manifest.name)
            return await told() if told else ModelHealth(is_progressing=True)

        monkeypatch.setattr(LocalTask, "health", health)

    return tell


async def stuck() -> ModelHealth:
    return ModelHealth(is_progressing=False)


async def asleep() -> ModelHealth:
    return ModelHealth(is_progressing=True, is_asleep=True)


async def silent() -> ModelHealth:
    await asyncio.Event().wait()
    raise AssertionError


async def undeployed() -> ModelHealth:
    raise NotReady("a model is not deployed yet")


async def broken() -> ModelHealth:
    raise RuntimeError


@pytest.mark.parametrize("health", [stuck, silent, undeployed, broken])
async def test_a_model_that_fails_does_not_take_the_others_traffic(
    health: Health,
    open_client: OpenClient,
    tell: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("service.api.probe_routes.PROBE_TIMEOUT_S", 0.05)
    tell(stories=health)
    async with open_client("sentiment", "stories") as client:
        strict, lenient = await client.get("/ready"), await client.get("/ready?any=true")
        alone = await client.get("/models/stories/ready?any=true")

    assert strict.status_code == alone.status_code == (500 if health is broken else 503)
    assert lenient.status_code == 200
    assert ("model stories does not say" in caplog.text) == (health is broken)
    assert {name: each["is_progressing"] for name, each in lenient.json()["models"].items()} == {
        "sentiment": True,
        "stories": False,
    }


async def test_where_no_model_can_answer_none_is_enough(open_client: OpenClient, tell: Callable[..., None]) -> None:
    tell(sentiment=stuck, stories=undeployed)
    async with open_client("sentiment", "stories") as client:
        answer = await client.get("/ready?any=true")

    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "a model is not deployed yet")


async def test_a_model_that_sleeps_can_answer(open_client: OpenClient, tell: Callable[..., None]) -> None:
    tell(sentiment=stuck, stories=asleep)
    async with open_client("sentiment", "stories") as client:
        assert (await client.get("/ready?any=true")).status_code == 200


async def test_the_api_documents_that_one_model_may_be_enough(open_client: OpenClient) -> None:
    async with open_client("stories") as client:
        described = (await client.get("/openapi.json")).json()["paths"]["/ready"]["get"]

    assert "any=true" in described["description"]
    (parameter,) = described["parameters"]
    assert (parameter["name"], parameter["required"]) == ("any", False) and parameter["description"]
