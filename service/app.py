"""The composition root: settings → one Serve application per model, and the gateway that offers them all.

The engine lives in each model's ingress replica, so a request to `/models/<name>` reaches it in one hop. The gateway
at `/` reaches the same tasks through handles.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from model.package import Manifest
from service.api.app import create_app
from service.errors import InternalError, NotReady, ServerOverloaded, ServiceError
from service.logs import configure_logs
from service.metrics import Metrics
from service.schemas import AnyEvent, AnyRequest, ModelHealth, Response
from service.settings import Autoscaling, ModelSettings, Settings
from service.tasks.loading import load_task
from service.tasks.task import Task

MAX_GATEWAY_REQUESTS = 4096
LOOK_BACK_S = 4.0  # over which a replica's load is averaged


class ModelReplica:
    """One model in one process: its API, and the same task for the gateway's handle."""

    def __init__(self, model: ModelSettings, settings: Settings) -> None:
        configure_logs()
        self._settings = settings
        self._metrics = Metrics(settings.metrics_dir)
        self._metrics.export(settings.host, settings.metrics_port)
        self._task = load_task(model, settings.limits, self._metrics)

    def __serve_build_asgi_app__(self) -> FastAPI:  # Serve's name for it
        return create_app([self._task], self._settings, self._metrics, is_behind_serve=True)

    async def predict(self, request: AnyRequest) -> Response:
        """Answer a request from the gateway."""
        return await self._task.predict(request)

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Answer a request from the gateway piece by piece."""
        async for event in self._task.stream(request):
            yield event

    async def health(self) -> ModelHealth:
        """Tell the gateway how the task is doing."""
        return await self._task.health()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell Serve's controller, for `service.autoscaling`."""
        health = await self._task.health()
        return {"queued_tokens": health.queued_tokens, "slots_used": health.slots_used}

    async def check_health(self) -> None:
        """Tell Serve, which replaces a replica whose check raises."""
        if not (await self._task.health()).is_progressing:
            raise RuntimeError("the engine makes no progress")


class RemoteTask:
    """A task in a model's replica, reached through its handle."""

    def __init__(self, manifest: Manifest, handle: DeploymentHandle[Any]) -> None:
        self.manifest = manifest
        self._handle = handle
        self._streaming_handle = handle.options(stream=True)

    async def predict(self, request: AnyRequest) -> Response:
        """Ask the replica."""
        answer = self._handle.predict.remote(request)
        try:
            with _remote_errors():
                return cast("Response", await answer)
        except asyncio.CancelledError:
            answer.cancel()  # the client has left, so the replica may stop too
            raise

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Ask the replica for a stream; leaving it early ends it there too."""
        events = self._streaming_handle.stream.remote(request)
        try:
            with _remote_errors():
                async for event in cast("AsyncGenerator[AnyEvent, None]", events):
                    yield event
        finally:
            events.cancel()

    async def health(self) -> ModelHealth:
        """Ask a replica."""
        with _remote_errors():
            return cast("ModelHealth", await self._handle.health.remote())

    async def close(self) -> None:
        """Do nothing: the replica belongs to Serve."""


@contextmanager
def _remote_errors() -> Iterator[None]:
    """Turn what a handle raises into the client's errors."""
    try:
        yield
    except BackPressureError:
        raise ServerOverloaded("too many requests are waiting; try again") from None
    except (RayActorError, DeploymentUnavailableError):
        raise NotReady("the model's replica is gone and will be replaced; try again") from None
    except RayTaskError as error:
        if isinstance(error.cause, ServiceError):
            raise error.cause from None
        raise InternalError("the model failed on this request") from error


class Gateway:
    """All models under one address."""

    def __init__(self, packages: list[Path], settings: Settings) -> None:
        configure_logs()
        self._settings = settings
        self._manifests = [Manifest.load(package) for package in packages]
        self._metrics = Metrics(settings.metrics_dir)
        self._metrics.export(settings.host, settings.metrics_port)

    def __serve_build_asgi_app__(self) -> FastAPI:  # Serve's name for it
        tasks: list[Task] = [RemoteTask(manifest, serve.get_app_handle(manifest.name)) for manifest in self._manifests]
        return create_app(tasks, self._settings, self._metrics, is_behind_serve=True)


def autoscaling_config(autoscaling: Autoscaling) -> AutoscalingConfig:
    """Return a model's bounds, delays and policy, as Serve takes them."""
    of_policy = autoscaling.of_policy()
    policy = AutoscalingPolicy(policy_function="service.autoscaling:LoadPolicy", policy_kwargs=of_policy)
    with warnings.catch_warnings():
        # How often replicas report is in the environment now; but Ray holds the look-back period against the old field.
        warnings.simplefilter("ignore", DeprecationWarning)
        return AutoscalingConfig(
            policy=policy,
            target_ongoing_requests=autoscaling.ongoing_requests,
            look_back_period_s=LOOK_BACK_S,
            metrics_interval_s=LOOK_BACK_S / 4,
            **autoscaling.model_dump(exclude=set(of_policy)),
        )


def model_application(model: ModelSettings, settings: Settings) -> Application:
    """Return the Serve application of one model."""
    deployment = serve.deployment(
        serve.ingress()(ModelReplica),
        name="model",
        autoscaling_config=autoscaling_config(model.autoscaling),
        max_ongoing_requests=model.max_ongoing_requests,
        ray_actor_options={"num_cpus": model.num_cpus},
        health_check_period_s=10,
        graceful_shutdown_timeout_s=20,
    )
    return cast("Application", deployment.bind(model, settings))  # type: ignore[attr-defined]  # Ray types the decorator


def gateway_application(models: list[ModelSettings], settings: Settings) -> Application:
    """Return the Serve application of the gateway."""
    deployment = serve.deployment(
        serve.ingress()(Gateway),
        name="gateway",
        max_ongoing_requests=MAX_GATEWAY_REQUESTS,
        ray_actor_options={"num_cpus": 0.1},
        graceful_shutdown_timeout_s=20,
    )
    return cast("Application", deployment.bind([model.package for model in models], settings))  # type: ignore[attr-defined]  # Ray types the decorator


def targets(settings: Settings) -> list[serve.RunTarget]:
    """Return all applications with their names and addresses; raises `PackageError` for a package that is not valid."""
    models = settings.models()
    applications = []
    for model in models:
        name = Manifest.load(model.package).name
        applications.append(
            serve.RunTarget(model_application(model, settings), name=name, route_prefix=f"/models/{name}")
        )
    gateway = serve.RunTarget(gateway_application(models, settings), name="gateway", route_prefix="/")
    return [*applications, gateway]
