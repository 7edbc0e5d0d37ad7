from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from service.api.app import create_app
from service.errors import NotReady
from service.models_file import Autoscaling, ModelSettings
from service.remote import RemoteTask, remote_tasks
from service.replica_groups import REPLICA
from service.schemas import ModelHealth
from service.settings import Settings
from service.status_cache import StatusCache
from tests.conftest import TinyPackage


def remote(package: TinyPackage, replica: object) -> RemoteTask:
    """Return the task of a replica that is deployed."""
    deployed = SimpleNamespace(deployments={REPLICA: SimpleNamespace(status="HEALTHY", replica_states={"RUNNING": 1})})

    async def status() -> Any:
        return SimpleNamespace(applications={package.manifest.name: deployed})

    name = package.manifest.name
    return RemoteTask(package.manifest, cast("Any", replica), name, status=StatusCache(status), may_sleep=False)


class Question:
    """Counts how often it is asked; answers when it may."""

    def __init__(self) -> None:
        self.asked, self.now, self.may_answer = 0, 0.0, asyncio.Event()
        self.cache = StatusCache(self.ask, fresh_for_s=1.0, clock=lambda: self.now)

    async def ask(self) -> int:
        self.asked += 1
        await self.may_answer.wait()
        return self.asked


async def test_those_who_ask_at_once_share_one_answer() -> None:
    question = Question()
    asking = [asyncio.create_task(question.cache.get()) for _ in range(100)]
    await asyncio.sleep(0)
    question.may_answer.set()

    assert await asyncio.gather(*asking) == [1] * 100


async def test_an_answer_is_asked_for_again_when_it_is_old() -> None:
    question = Question()
    question.may_answer.set()
    answers = []
    for question.now in (0, 0.9, 1.0, 1.9, 2.0):
        answers.append(await question.cache.get())

    assert answers == [1, 1, 2, 2, 3]


async def test_one_who_leaves_ends_the_question_for_nobody() -> None:
    question = Question()
    leaving, staying = (asyncio.create_task(question.cache.get()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    question.may_answer.set()

    assert await staying == 1
    assert leaving.cancelled()


async def test_a_question_belongs_to_nobody_who_asks() -> None:
    asker: ContextVar[str] = ContextVar("asker")

    async def ask() -> str | None:
        return asker.get(None)

    asker.set("the first, whose client may leave")

    assert await StatusCache(ask).get() is None


async def test_an_error_is_an_answer_too() -> None:
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        raise NotReady("stuck")

    cache = StatusCache(ask)
    for _ in range(3):
        with pytest.raises(NotReady, match="stuck"):
            await cache.get()
    assert asked == 1


async def test_a_question_that_is_never_answered_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.status_cache.GIVE_UP_AFTER_S", 0.01)
    question = Question()
    with pytest.raises(TimeoutError):
        await question.cache.get()
    question.now = 1.0
    question.may_answer.set()

    assert await question.cache.get() == 2


class Replica:
    """Stands for a Serve handle: counts how often a replica is asked for its health."""

    def __init__(self) -> None:
        self.asked = 0
        self.health = self

    def options(self, **_: object) -> Replica:
        return self

    async def remote(self, _model: str) -> ModelHealth:
        self.asked += 1
        await asyncio.sleep(0)
        return ModelHealth(is_progressing=True)


async def test_a_model_that_serve_does_not_know_yet_is_not_ready(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.remote.serve.status", lambda: SimpleNamespace(applications={}))
    monkeypatch.setattr("service.remote.serve.get_deployment_handle", lambda *_, **__: Replica())
    asleep = ModelSettings(package=sentiment.folder, autoscaling=Autoscaling(min_replicas=0))
    [task] = remote_tasks([asleep])
    transport = httpx.ASGITransport(create_app([task], Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.get("/ready")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")


async def test_a_model_that_does_not_answer_in_time_is_not_ready(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(Replica):
        async def remote(self, _model: str) -> ModelHealth:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr("service.api.probe_routes.PROBE_TIMEOUT_S", 0.05)
    task = remote(sentiment, Silent())
    transport = httpx.ASGITransport(create_app([task], Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.get("/ready")

    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "a model does not answer")


async def test_a_call_that_ray_gives_up_is_answered(sentiment: TinyPackage) -> None:
    class GivenUp(Replica):
        def __init__(self) -> None:
            super().__init__()
            self.predict = self

        def remote(self, *_: object) -> Any:
            answer = asyncio.get_running_loop().create_future()
            answer.cancel()
            return answer

    task = remote(sentiment, GivenUp())
    transport = httpx.ASGITransport(create_app([task], Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answers = [await client.get("/ready"), await client.post("/classify", json={"input": "good"})]

    assert [(each.status_code, each.json()["error"]["code"]) for each in answers] == [(503, "not_ready")] * 2


async def test_a_model_without_a_replica_is_described_all_the_same(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(Replica):
        async def remote(self, *_: object) -> ModelHealth:
            await asyncio.sleep(60)
            raise AssertionError("nobody waits for so long")

    monkeypatch.setattr("service.api.cards.PATIENCE_S", 0.01)
    task = remote(sentiment, Gone())
    transport = httpx.ASGITransport(create_app([task], Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        (card,) = (await client.get("/v1/models")).json()["data"]

    assert (card["id"], card["provider"]) == ("sentiment", None)


async def test_the_gateway_answers_at_a_models_own_address_until_haproxy_does(
    sentiment: TinyPackage, stories: TinyPackage
) -> None:
    replicas = [Replica(), Replica()]
    tasks = [remote(package, replica) for package, replica in zip((sentiment, stories), replicas, strict=True)]
    transport = httpx.ASGITransport(create_app(tasks, Settings(api_keys=["secret"])))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/models/stories/ready")).status_code == 200
        assert (await client.get("/replicas/shared/models/stories/health")).status_code == 200
        assert [replica.asked for replica in replicas] == [0, 1]
        assert (await client.get("/models/stories/v1/models")).status_code == 401
        key = {"X-API-Key": "secret"}
        wrong = await client.post("/models/stories/classify", json={"input": "good"}, headers=key)
        unknown = await client.get("/models/none/ready", headers=key)

    assert wrong.json()["error"]["message"] == "there is no model for classify here; there are stories (generate)"
    assert unknown.status_code == 404


async def test_a_flood_of_probes_at_the_gateway_asks_each_replica_once(
    sentiment: TinyPackage, stories: TinyPackage
) -> None:
    replicas = [Replica(), Replica()]
    tasks = [remote(package, replica) for package, replica in zip((sentiment, stories), replicas, strict=True)]
    transport = httpx.ASGITransport(create_app(tasks, Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answers = await asyncio.gather(*(client.get(path) for path in ("/health", "/ready") * 50))

    assert {answer.status_code for answer in answers} == {200}
    assert all(1 <= replica.asked <= 2 for replica in replicas)  # a second may have passed
