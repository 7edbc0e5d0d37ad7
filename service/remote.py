"""Models in other processes, as the gateway has them: tasks behind a Serve handle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from grpc import StatusCode
from grpc.aio import AioRpcError
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import DeploymentStatusOverview, ServeStatus

from model.package import Manifest
from service.api.observing import observed
from service.errors import InternalError, NotReady, ServerOverloaded, ServiceError, TooLarge
from service.models_file import ModelSettings
from service.replica_groups import REPLICA
from service.schemas import AnyEvent, AnyRequest, ModelHealth, Response
from service.status_cache import StatusCache
from service.tasks.task import ANONYMOUS
from service.tracing import Carried

Answer = TypeVar("Answer")

CONTROLLER_S = 0.5  # in which it says what is deployed, or nobody waits for it
HEALTH_S = 2.0  # in which a replica says how it is, or has as many requests as it takes, and the question waits
GONE = frozenset({StatusCode.CANCELLED, StatusCode.UNAVAILABLE})  # calls whose replica ends, as gRPC has it
LOOK_S = 2.0  # between looks whether there will be a replica to answer
ILL = frozenset({"UNHEALTHY", "DEPLOY_FAILED"})  # of what Serve calls the states of deployments
FAILED = (
    "failed to start"  # in what Serve tells of such a state, where the replica has not been killed, but begins anew
)

# Apart from other threads: a controller that does not answer holds this one, and who asks next waits for it or leaves.
_asking_the_controller = ThreadPoolExecutor(1, "controller")


class RemoteTask:
    """A task in a replica, reached through its handle.

    A replica that may sleep would be kept awake by the question how it is: what the controller knows is told instead.
    """

    is_remote = True

    def __init__(
        self,
        manifest: Manifest,
        handle: DeploymentHandle[Any],
        application: str,
        *,
        status: StatusCache[ServeStatus],
        may_sleep: bool,
    ) -> None:
        self.manifest = manifest
        self._handle, self._application = handle, application
        self._status, self._may_sleep = status, may_sleep  # `status` is of all applications at once
        self._was_deployed = False
        self._streaming_handle = handle.options(stream=True)
        self._health = StatusCache(self._ask_health)

    async def predict(self, request: AnyRequest, client: str = ANONYMOUS) -> Response:
        """Ask the replica; raises `NotReady` for one that was never deployed."""
        await self._check_deployed()
        answer = self._handle.predict.remote(self.manifest.name, request, client, _carried())
        try:
            with _remote_errors():
                return cast("Response", await self._unless_it_cannot_start(answer, answer.cancel))
        except asyncio.CancelledError:
            answer.cancel()  # the client has left, so the replica may stop too
            raise

    async def stream(self, request: AnyRequest, client: str = ANONYMOUS) -> AsyncGenerator[AnyEvent, None]:
        """Ask the replica for a stream; leaving it early ends it there too. Raises as `predict` does."""
        await self._check_deployed()
        events = self._streaming_handle.stream.remote(self.manifest.name, request, client, _carried())
        try:
            with _remote_errors():
                some = cast("AsyncGenerator[AnyEvent, None]", events)
                first = await self._unless_it_cannot_start(anext(some, None), events.cancel)
                if first is not None:
                    yield first
                async for event in some:
                    yield event
        finally:
            events.cancel()

    async def health(self) -> ModelHealth:
        """Tell how a replica is doing, if there is one: asked once a second, however often probes come."""
        if self._may_sleep:
            return health_by_controller(await self._status.get(), self._application)
        return await self._health.get()

    async def _check_deployed(self) -> None:
        """Raise `NotReady` for an application that Serve has not, as one that was not built: its handle would wait.

        One that was there once is not asked about again; and where the controller does not answer the handle may know.
        """
        if self._was_deployed:
            return
        try:
            async with asyncio.timeout(CONTROLLER_S):
                status = await self._status.get()
        except Exception:
            return
        health_by_controller(status, self._application)
        self._was_deployed = True

    async def _unless_it_cannot_start(self, answer: Awaitable[Answer], leave: Callable[[], object]) -> Answer:
        """Return an answer, or leave it and raise `NotReady` where Serve knows that no replica starts to give it.

        The handle waits for one, up to the request's deadline; one that starts is worth waiting for.
        """
        task = asyncio.ensure_future(answer)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # of one that was left nobody asks
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                with suppress(Exception):  # where the controller does not answer the handle may know
                    async with asyncio.timeout(CONTROLLER_S):
                        status = await self._status.get()
                    if cannot_start(status, self._application):
                        break
            else:
                return task.result()
        finally:
            task.cancel()
        leave()
        raise NotReady("the model's replica cannot start; the service's log says why")

    async def _ask_health(self) -> ModelHealth:
        answer = self._handle.health.remote(self.manifest.name)
        try:
            with _remote_errors():
                async with asyncio.timeout(HEALTH_S):
                    return cast("ModelHealth", await answer)
        except TimeoutError:
            answer.cancel()
            return health_by_controller(await self._status.get(), self._application)

    def is_full_for(self, client: str) -> bool:
        """Say no: its replica knows, and refuses; few requests come this way (`service.ingress`)."""
        return False

    async def close(self) -> None:
        """Do nothing: the replica belongs to Serve."""


def remote_tasks(models: Sequence[ModelSettings]) -> list[RemoteTask]:
    """Return the tasks of models, in their order; those of one replica have one handle. Raises `PackageError`.

    A handle finds its replicas when it is used: one model that is not deployed must not keep the gateway from starting.
    """
    manifests = [model.manifest() for model in models]
    applications = [model.replica_group or manifest.name for model, manifest in zip(models, manifests, strict=True)]
    handles = {
        application: serve.get_deployment_handle(REPLICA, application, _check_exists=False)
        for application in set(applications)
    }
    status = StatusCache(_ask_the_controller)
    return [
        RemoteTask(
            manifest,
            handles[application],
            application,
            status=status,
            may_sleep=model.autoscaling.min_replicas == 0,
        )
        for model, manifest, application in zip(models, manifests, applications, strict=True)
    ]


def _carried() -> Carried:
    """Return what the replica's logs and spans need of the request in progress."""
    request = observed()
    return Carried(request.id, request.traceparent)


@contextmanager
def _remote_errors() -> Iterator[None]:
    """Turn what a handle raises into the client's errors."""
    try:
        yield
    except BackPressureError:
        raise ServerOverloaded() from None
    except AioRpcError as error:  # of a message that is too long, or a replica whose end Ray has not understood
        if error.code() is StatusCode.RESOURCE_EXHAUSTED:
            raise TooLarge(
                "the answer is too long to pass through the gateway; ask for less at a time, or ask at the model's own "
                "address, /models/<name>"
            ) from None
        if error.code() not in GONE:
            raise
        raise NotReady("the model's replica is gone and will be replaced; try again") from None
    except (RayActorError, DeploymentUnavailableError):
        raise NotReady("the model's replica is gone and will be replaced; try again") from None
    except RayTaskError as error:
        if isinstance(error.cause, ServiceError):
            raise error.cause from None
        raise InternalError("the model failed on this request") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Ray gave the call up, not its caller. As a cancellation it would pass all that answers, and end in silence.
        raise NotReady("the call to the model's replica was cut; try again") from None


async def _ask_the_controller() -> ServeStatus:
    try:
        return await asyncio.get_running_loop().run_in_executor(_asking_the_controller, serve.status)
    except (RayActorError, RayServeException):
        raise NotReady("Ray Serve's controller does not answer; try again") from None


def cannot_start(status: ServeStatus, application: str) -> bool:
    """Tell whether a model has no replica, and the last that was begun has failed; raises `NotReady` for none yet."""
    deployment, running = _deployment(status, application)
    return deployment.status in ILL and not running and FAILED in deployment.message


def health_by_controller(status: ServeStatus, application: str) -> ModelHealth:
    """Tell what Serve's controller knows, which checks the replicas that there are; raises `NotReady` for none yet."""
    deployment, running = _deployment(status, application)
    return ModelHealth(is_progressing=deployment.status not in ILL, is_asleep=not running)


def _deployment(status: ServeStatus, application: str) -> tuple[DeploymentStatusOverview, int]:
    """Return what Serve knows of a model's replicas, and how many run."""
    try:
        deployment = status.applications[application].deployments[REPLICA]
    except KeyError:
        raise NotReady("a model is not deployed yet") from None
    return deployment, cast("dict[str, int]", deployment.replica_states).get("RUNNING", 0)
