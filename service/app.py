"""The composition root: settings → one Serve application per model, and the gateway that offers them all.

The engine lives in each model's ingress replica, so a request to `/models/<name>` reaches it in one hop. The gateway
at `/` reaches the same tasks through handles.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, cast

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve import Application
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from model.package import Manifest
from service.api.app import create_app
from service.errors import InternalError, NotReady, ServerOverloaded, ServiceError
from service.logs import configure_logs
from service.metrics import Metrics
from service.schemas import AnyEvent, AnyRequest, ModelHealth, Response
from service.settings import Autoscaling, ModelSettings, Settings, SettingsError
from service.tasks.loading import load_task
from service.tasks.task import Task

MAX_GATEWAY_REQUESTS = 4096
LOOK_BACK_S = 4.0  # over which a replica's load is averaged
DRAIN_S = 20  # a replica that goes finishes what it has begun within these
MODEL, GATEWAY = "model", "gateway"  # names of the deployments


class ModelReplica:
    """One model in one process: its API, and the same task for the gateway's handle."""

    def __init__(self, model: ModelSettings) -> None:
        configure_logs()
        self._settings, self._metrics = _of_this_process()
        self._task = load_task(model, self._settings.limits, self._metrics)

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


def _of_this_process() -> tuple[Settings, Metrics]:
    """Read the settings here, on whichever node this is, and count for this node."""
    settings = Settings.read()
    metrics = Metrics(settings.metrics_dir)
    metrics.export(settings.host, settings.metrics_port)
    return settings, metrics


class RemoteTask:
    """A task in a model's replica, reached through its handle; one that may sleep is not asked for its health."""

    def __init__(self, manifest: Manifest, handle: DeploymentHandle[Any], *, may_sleep: bool) -> None:
        self.manifest = manifest
        self._handle = handle
        self._may_sleep = may_sleep
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
        """Ask a replica, if there is one."""
        if self._may_sleep:  # to ask it would keep it awake
            return await asyncio.to_thread(health_by_controller, self.manifest.name)
        with _remote_errors():
            return cast("ModelHealth", await self._handle.health.remote())

    @property
    def is_full(self) -> bool:
        """Say no: the replica itself knows."""
        return False

    async def close(self) -> None:
        """Do nothing: the replica belongs to Serve."""


@contextmanager
def _remote_errors() -> Iterator[None]:
    """Turn what a handle raises into the client's errors."""
    try:
        yield
    except BackPressureError:
        raise ServerOverloaded() from None
    except (RayActorError, DeploymentUnavailableError):
        raise NotReady("the model's replica is gone and will be replaced; try again") from None
    except RayTaskError as error:
        if isinstance(error.cause, ServiceError):
            raise error.cause from None
        raise InternalError("the model failed on this request") from error


class Gateway:
    """All models under one address."""

    def __init__(self, models: list[ModelSettings]) -> None:
        configure_logs()
        self._settings, self._metrics = _of_this_process()
        self._models = [(Manifest.load(model.package), model.autoscaling.min_replicas == 0) for model in models]

    def __serve_build_asgi_app__(self) -> FastAPI:  # Serve's name for it
        tasks: list[Task] = [
            RemoteTask(manifest, serve.get_app_handle(manifest.name), may_sleep=may_sleep)
            for manifest, may_sleep in self._models
        ]
        return create_app(tasks, self._settings, self._metrics, is_behind_serve=True)


def health_by_controller(application: str) -> ModelHealth:
    """Ask Serve's controller, which checks the replicas that there are."""
    deployment = serve.status().applications[application].deployments[MODEL]
    replicas = cast("dict[str, int]", deployment.replica_states)
    return ModelHealth(is_progressing=deployment.status != "UNHEALTHY", is_asleep=not replicas.get("RUNNING"))


def autoscaling_config(autoscaling: Autoscaling) -> dict[str, Any]:
    """Return a model's bounds, delays and policy, as Serve's configuration files have them."""
    of_policy = autoscaling.of_policy()
    return {
        "policy": {"policy_function": "service.autoscaling:LoadPolicy", "policy_kwargs": of_policy},
        "target_ongoing_requests": autoscaling.ongoing_requests,
        "look_back_period_s": LOOK_BACK_S,
        # How often replicas report is in the environment now; Ray holds the look-back period against this old field.
        "metrics_interval_s": LOOK_BACK_S / 4,
        **autoscaling.model_dump(exclude=set(of_policy)),
    }


def model_options(model: ModelSettings) -> dict[str, Any]:
    """Return a model's deployment options, as Serve's configuration files have them."""
    return {
        "autoscaling_config": autoscaling_config(model.autoscaling),
        "max_ongoing_requests": model.max_ongoing_requests,
        "ray_actor_options": {"num_cpus": model.num_cpus, "num_gpus": model.num_gpus},
        "health_check_period_s": 10,
        "graceful_shutdown_timeout_s": DRAIN_S,
    }


def gateway_options() -> dict[str, Any]:
    """Return the gateway's deployment options."""
    return {
        "max_ongoing_requests": MAX_GATEWAY_REQUESTS,
        "ray_actor_options": {"num_cpus": 0.1},
        "graceful_shutdown_timeout_s": DRAIN_S,
    }


def model_application(model: ModelSettings) -> Application:
    """Return the Serve application of one model."""
    return _application(ModelReplica, MODEL, model_options(model), model)


def gateway_application(models: list[ModelSettings]) -> Application:
    """Return the Serve application of the gateway."""
    return _application(Gateway, GATEWAY, gateway_options(), models)


def _application(replica: type, name: str, options: dict[str, Any], argument: Any) -> Application:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of metrics_interval_s
        deployment = serve.deployment(serve.ingress()(replica), name=name, **options)
    return cast("Application", deployment.bind(argument))  # type: ignore[attr-defined]  # Ray types the decorator


def build_model(arguments: dict[str, str]) -> Application:
    """Return the application of the model named `model`, for Serve's configuration files; settings are read here."""
    models = {Manifest.load(model.package).name: model for model in Settings.read().models()}
    name = arguments["model"]
    if name not in models:
        raise SettingsError(f"there is no model {name!r} in the models file; there are {', '.join(models)}")
    return model_application(models[name])


def build_gateway(_arguments: dict[str, str]) -> Application:
    """Return the gateway to all models of the models file, for Serve's configuration files."""
    return gateway_application(Settings.read().models())


def targets(models: list[ModelSettings]) -> list[serve.RunTarget]:
    """Return all applications with their names and addresses; raises `PackageError` for a package that is not valid."""
    applications = []
    for model in models:
        name = Manifest.load(model.package).name
        applications.append(serve.RunTarget(model_application(model), name=name, route_prefix=f"/models/{name}"))
    return [*applications, serve.RunTarget(gateway_application(models), name=GATEWAY, route_prefix="/")]
