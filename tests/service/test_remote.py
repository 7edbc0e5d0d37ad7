from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from service.models_file import Autoscaling, ModelSettings
from service.remote import remote_tasks
from service.replica_groups import REPLICA
from tests.conftest import TinyPackage


class Handle:
    def options(self, **_: object) -> Handle:
        return self


def test_models_of_one_replica_are_asked_through_one_handle_in_the_order_of_the_models_file(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles: dict[str, Any] = {"shared": Handle(), "b": Handle()}

    def handle(deployment: str, application: str, *, _check_exists: bool) -> Any:
        assert deployment == REPLICA and not _check_exists  # or one that is not deployed would keep all from starting
        return handles[application]

    monkeypatch.setattr("service.remote.serve.get_deployment_handle", handle)
    asleep = Autoscaling(min_replicas=0)
    models = [
        ModelSettings(package=sentiment.folder, name="a", replica="shared"),
        ModelSettings(package=sentiment.folder, name="b", autoscaling=asleep),
        ModelSettings(package=sentiment.folder, name="c", replica="shared"),
    ]
    tasks = remote_tasks(models)

    assert [task.manifest.name for task in tasks] == ["a", "b", "c"]
    assert [task._handle for task in tasks] == [handles["shared"], handles["b"], handles["shared"]]
    assert [task._by_controller is not None for task in tasks] == [False, True, False]


async def test_models_that_sleep_share_one_question_to_the_controller(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []

    def status() -> Any:
        asked.append(None)
        deployments = {REPLICA: SimpleNamespace(status="HEALTHY", replica_states={})}
        return SimpleNamespace(applications={name: SimpleNamespace(deployments=deployments) for name in "abc"})

    monkeypatch.setattr("service.remote.serve.get_deployment_handle", lambda *_, **__: Handle())
    monkeypatch.setattr("service.remote.serve.status", status)
    asleep = Autoscaling(min_replicas=0)
    tasks = remote_tasks([ModelSettings(package=sentiment.folder, name=name, autoscaling=asleep) for name in "abc"])
    healths = await asyncio.gather(*(task.health() for task in tasks))

    assert [health.is_asleep for health in healths] == [True] * 3 and len(asked) == 1
