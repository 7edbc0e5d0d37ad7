from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata
from ray.exceptions import RayActorError, RayTaskError
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from service.errors import EmptyInput, InternalError, NotReady, ServerOverloaded, ServiceError, TooLarge
from service.models_file import Autoscaling, ModelSettings
from service.remote import health_by_controller, remote_tasks
from service.replica_groups import REPLICA
from service.schemas import ClassifyRequest
from tests.conftest import TinyPackage


class Handle:
    predict: Any
    health: Any

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
        ModelSettings(package=sentiment.folder, name="a", replica_group="shared"),
        ModelSettings(package=sentiment.folder, name="b", autoscaling=asleep),
        ModelSettings(package=sentiment.folder, name="c", replica_group="shared"),
    ]
    tasks = remote_tasks(models)

    assert [task.manifest.name for task in tasks] == ["a", "b", "c"]
    assert [task._handle for task in tasks] == [handles["shared"], handles["b"], handles["shared"]]
    assert [task._may_sleep for task in tasks] == [False, True, False]


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


class Waiting:
    """A question that waits behind the requests of a busy replica."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def __await__(self) -> Any:
        return asyncio.Event().wait().__await__()

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.mark.parametrize("status", ["HEALTHY", "UNHEALTHY"])
async def test_of_a_replica_whose_requests_leave_no_room_for_questions_the_controller_tells(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    question, handle = Waiting(), Handle()
    handle.health = SimpleNamespace(remote=lambda _name: question)
    deployments = {REPLICA: SimpleNamespace(status=status, replica_states={"RUNNING": 1})}
    applications = {"sentiment": SimpleNamespace(deployments=deployments)}
    monkeypatch.setattr("service.remote.HEALTH_S", 0.01)
    monkeypatch.setattr("service.remote.serve.get_deployment_handle", lambda *_, **__: handle)
    monkeypatch.setattr("service.remote.serve.status", lambda: SimpleNamespace(applications=applications))
    (task,) = remote_tasks([ModelSettings(package=sentiment.folder, name="sentiment")])

    health = await task.health()

    assert question.is_cancelled and (health.is_asleep, health.is_progressing) == (False, status == "HEALTHY")


class Answering(Handle):
    """A handle whose replica says whose it is."""

    @property
    def predict(self) -> Any:
        async def answer(name: str, *_: object) -> Any:
            return name

        return SimpleNamespace(remote=lambda *arguments: asyncio.create_task(answer(*arguments)))


async def test_a_model_that_was_never_deployed_is_not_waited_for(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = SimpleNamespace(status="HEALTHY", replica_states={"RUNNING": 1})
    applications = {
        "there": SimpleNamespace(deployments={REPLICA: deployment}),
        "failed": SimpleNamespace(deployments={}),
    }
    monkeypatch.setattr("service.remote.serve.get_deployment_handle", lambda *_, **__: Answering())
    monkeypatch.setattr("service.remote.serve.status", lambda: SimpleNamespace(applications=applications))
    names = ["there", "failed", "unknown"]
    there, *others = remote_tasks([ModelSettings(package=sentiment.folder, name=name) for name in names])
    request = ClassifyRequest(input="a")

    for task in others:
        with pytest.raises(NotReady, match="not deployed yet"):
            await task.predict(request)
        with pytest.raises(NotReady, match="not deployed yet"):
            await anext(task.stream(request))
    answer: Any = await there.predict(request)
    assert answer == "there"


async def test_while_the_controller_is_away_the_handle_is_asked(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.remote.serve.get_deployment_handle", lambda *_, **__: Answering())
    monkeypatch.setattr("service.remote.serve.status", lambda: 1 / 0)
    (task,) = remote_tasks([ModelSettings(package=sentiment.folder, name="a")])

    answer: Any = await task.predict(ClassifyRequest(input="a"))
    assert answer == "a"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (BackPressureError(num_queued_requests=1, max_queued_requests=1), ServerOverloaded),
        (RayActorError(), NotReady),
        (AioRpcError(StatusCode.CANCELLED, Metadata(), Metadata(), "secret"), NotReady),
        (AioRpcError(StatusCode.RESOURCE_EXHAUSTED, Metadata(), Metadata(), "CLIENT: Received message"), TooLarge),
        (DeploymentUnavailableError(DeploymentID("model", "a")), NotReady),
        (RayTaskError("predict", "a traceback", EmptyInput("input is empty", "input")), EmptyInput),
        (RayTaskError("predict", "a traceback", ZeroDivisionError("secret")), InternalError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_what_a_handle_raises_is_the_clients_error(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[ServiceError]
) -> None:
    async def fails(*_: object) -> None:
        raise raised

    handle = Handle()
    handle.predict = SimpleNamespace(remote=lambda *arguments: asyncio.create_task(fails(*arguments)))
    monkeypatch.setattr("service.remote.serve.get_deployment_handle", lambda *_, **__: handle)
    (task,) = remote_tasks([ModelSettings(package=sentiment.folder, name="a")])
    task._was_deployed = True  # so that no controller is asked

    with pytest.raises(expected) as told:
        await task.predict(ClassifyRequest(input="good"), "")
    assert type(told.value) is expected and "secret" not in told.value.message


@pytest.mark.parametrize("status", ["HEALTHY", "UNHEALTHY", "DEPLOY_FAILED"])
def test_a_model_whose_replicas_fail_is_not_well_though_it_sleeps(status: str) -> None:
    deployments = {REPLICA: SimpleNamespace(status=status, replica_states={})}
    known: Any = SimpleNamespace(applications={"a": SimpleNamespace(deployments=deployments)})

    health = health_by_controller(known, "a")
    assert health.is_asleep and health.is_progressing == (status == "HEALTHY")
    with pytest.raises(NotReady):
        health_by_controller(known, "b")


class WithoutReplica(Handle):
    """A handle that waits for a replica."""

    def __init__(self) -> None:
        self.predict = self.stream = SimpleNamespace(remote=lambda *_: Endless())


class Endless(Waiting):
    """An answer, whole or in pieces, that does not come."""

    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> Any:
        await self


@pytest.mark.parametrize(
    ("status", "message", "is_told"),
    [
        ("UNHEALTHY", "A replica failed to start with exception. Retrying.", True),
        ("DEPLOY_FAILED", "The deployment failed to start 3 times in a row.", True),
        ("UNHEALTHY", "A replica's health check failed.", False),  # it was killed, and the next one begins
        ("UPSCALING", "", False),
    ],
)
async def test_a_replica_that_cannot_start_is_not_waited_for_and_one_that_starts_is(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch, status: str, message: str, is_told: bool
) -> None:
    deployment = SimpleNamespace(status=status, message=message, replica_states={"STARTING": 1})
    applications = {"a": SimpleNamespace(deployments={REPLICA: deployment})}
    monkeypatch.setattr("service.remote.LOOK_S", 0.01)
    monkeypatch.setattr("service.remote.serve.get_deployment_handle", lambda *_, **__: WithoutReplica())
    monkeypatch.setattr("service.remote.serve.status", lambda: SimpleNamespace(applications=applications))
    (task,) = remote_tasks([ModelSettings(package=sentiment.folder, name="a")])
    task._was_deployed = True

    for answer in (task.predict(ClassifyRequest(input="a")), anext(task.stream(ClassifyRequest(input="a")))):
        with pytest.raises(NotReady if is_told else TimeoutError) as raised:
            await asyncio.wait_for(answer, 10 if is_told else 0.2)
        assert not is_told or "cannot start; the service's log says why" in str(raised.value)
