"""The composition root: settings → one Serve application per model, and the gateway that offers them all.

The engine lives in each model's ingress replica, so a request to `/models/<name>` reaches it in one hop. The gateway
at `/` reaches the same tasks through handles.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from typing import Any, cast

from fastapi import FastAPI
from pydantic import ValidationError
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve import Application
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from model.package import Manifest
from service.api.app import create_app
from service.api.status import StatusCache
from service.errors import InternalError, NotReady, ServerOverloaded, ServiceError
from service.keys import configured_keys
from service.logs import configure_logs
from service.metrics import SECONDS, Metrics
from service.metrics_port import export
from service.schemas import AnyEvent, AnyRequest, ModelHealth, Response
from service.settings import Autoscaling, ModelSettings, Settings, SettingsError, problems
from service.startup import GATEWAY, model_names
from service.tasks.loading import load_task
from service.tasks.task import ANONYMOUS, Task
from service.timeouts import Timeouts

MAX_GATEWAY_REQUESTS = 4096
# How long one thread keeps another waiting for the interpreter. A step takes it several times. By default it would wait
# 5 ms each time, longer than a small model computes, whenever the event loop writes somebody's long answer.
SWITCH_S = 0.0005
LOOK_BACK_S = 4.0  # over which a replica's load is averaged
MODEL = "model"  # the name of a model's deployment; the gateway's is that of its application
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # where a cluster's nodes listen; see service.serve_config
RAY_LOGS = {"encoding": "JSON", "enable_access_log": False}  # every request has a line of ours


# Apart from other threads: a controller that does not answer holds this one, and who asks next waits for it or leaves.
_asking_the_controller = ThreadPoolExecutor(1, "controller")


class ModelReplica:
    """One model in one process: its API, and the same task for the gateway's handle."""

    def __init__(self, model: ModelSettings) -> None:
        configure_logs()
        self._settings, self._metrics = _of_this_process()
        self._task = load_task(model, self._settings.limits, self._metrics)
        _spare_the_collector()
        sys.setswitchinterval(SWITCH_S)

    def __serve_build_asgi_app__(self) -> FastAPI:  # Serve's name for it
        return create_app([self._task], self._settings, self._metrics, is_behind_serve=True)

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Answer a request from the gateway."""
        return await self._task.predict(request, client)

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Answer a request from the gateway piece by piece."""
        async with aclosing(self._task.stream(request, client)) as events:
            async for event in events:
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


def _spare_the_collector() -> None:
    """Keep the collector of garbage from what lives as long as the process: everybody would wait while it looks.

    The second time it finds next to nothing. It looks through all when a quarter of what it last found has come anew,
    and a quarter of the libraries' objects would be many requests that failed, each with its body of megabytes.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


def _of_this_process() -> tuple[Settings, Metrics]:
    """Read the settings here, on whichever node this is, and count for this node."""
    settings = Settings.read()
    settings.check_exposure(settings.host)
    metrics = Metrics(settings.metrics_dir, settings.latency_buckets or SECONDS)
    export(metrics, settings.host, settings.metrics_port)
    return settings, metrics


class RemoteTask:
    """A task in a model's replica, reached through its handle; one that may sleep is not asked for its health."""

    is_remote = True

    def __init__(self, manifest: Manifest, handle: DeploymentHandle[Any], *, may_sleep: bool) -> None:
        self.manifest = manifest
        self._handle = handle
        self._may_sleep = may_sleep
        self._streaming_handle = handle.options(stream=True)
        self._health = StatusCache(self._ask_health)

    async def predict(self, request: AnyRequest, client: str = ANONYMOUS) -> Response:
        """Ask the replica."""
        answer = self._handle.predict.remote(request, client)
        try:
            with _remote_errors():
                return cast("Response", await answer)
        except asyncio.CancelledError:
            answer.cancel()  # the client has left, so the replica may stop too
            raise

    async def stream(self, request: AnyRequest, client: str = ANONYMOUS) -> AsyncGenerator[AnyEvent, None]:
        """Ask the replica for a stream; leaving it early ends it there too."""
        events = self._streaming_handle.stream.remote(request, client)
        try:
            with _remote_errors():
                async for event in cast("AsyncGenerator[AnyEvent, None]", events):
                    yield event
        finally:
            events.cancel()

    async def health(self) -> ModelHealth:
        """Tell how a replica is doing, if there is one: asked once a second, however often probes come."""
        return await self._health.get()

    async def _ask_health(self) -> ModelHealth:
        if self._may_sleep:  # to ask it would keep it awake
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_asking_the_controller, health_by_controller, self.manifest.name)
        with _remote_errors():
            return cast("ModelHealth", await self._handle.health.remote())

    def is_full_for(self, client: str) -> bool:
        """Say no: its replica knows, and refuses; few requests come this way (`service.ingress`)."""
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
        self._models = [(model.manifest(), model.autoscaling.min_replicas == 0) for model in models]

    def __serve_build_asgi_app__(self) -> FastAPI:  # Serve's name for it
        tasks: list[Task] = [
            RemoteTask(manifest, serve.get_app_handle(manifest.name), may_sleep=may_sleep)
            for manifest, may_sleep in self._models
        ]
        return create_app(tasks, self._settings, self._metrics, is_behind_serve=True)


def health_by_controller(application: str) -> ModelHealth:
    """Ask Serve's controller, which checks the replicas that there are; raises `NotReady` if it knows of none yet."""
    try:
        deployment = serve.status().applications[application].deployments[MODEL]
    except KeyError:
        raise NotReady("a model is not deployed yet") from None
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


def model_options(model: ModelSettings, timeouts: Timeouts) -> dict[str, Any]:
    """Return a model's deployment options, as Serve's configuration files have them."""
    return {
        "autoscaling_config": autoscaling_config(model.autoscaling),
        "max_ongoing_requests": model.max_ongoing_requests,
        "ray_actor_options": {"num_cpus": model.num_cpus, "num_gpus": model.num_gpus},
        "health_check_period_s": 10,
        "graceful_shutdown_timeout_s": timeouts.graceful_shutdown,
    }


def gateway_options(timeouts: Timeouts) -> dict[str, Any]:
    """Return the gateway's deployment options."""
    return {
        "max_ongoing_requests": MAX_GATEWAY_REQUESTS,
        "ray_actor_options": {"num_cpus": 0.1},
        "graceful_shutdown_timeout_s": timeouts.graceful_shutdown,
    }


def model_application(model: ModelSettings, timeouts: Timeouts) -> Application:
    """Return the Serve application of one model."""
    return _application(ModelReplica, MODEL, model_options(model, timeouts), model)


def gateway_application(models: list[ModelSettings], timeouts: Timeouts) -> Application:
    """Return the Serve application of the gateway."""
    return _application(Gateway, GATEWAY, gateway_options(timeouts), models)


def _application(replica: type, name: str, options: dict[str, Any], argument: Any) -> Application:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of metrics_interval_s
        deployment = serve.deployment(serve.ingress()(replica), name=name, **options)
    return cast("Application", deployment.bind(argument))  # type: ignore[attr-defined]  # Ray types the decorator


def build_model(arguments: dict[str, Any]) -> Application:
    """Return the application of a model, whose settings are the arguments, for Serve's configuration files."""
    settings = _settings_of_cluster()
    (model,) = _models_of(arguments)
    return model_application(model, Timeouts.of(settings.limits))


def build_gateway(arguments: dict[str, Any]) -> Application:
    """Return the gateway to the models whose settings are the arguments, for Serve's configuration files."""
    settings = _settings_of_cluster()
    return gateway_application(_models_of(arguments), Timeouts.of(settings.limits))


def _settings_of_cluster() -> Settings:
    """Return this cluster's settings; raises `SettingsError` if it must not come up so."""
    settings = Settings.read()
    settings.check_exposure(EVERY_ADDRESS)
    configured_keys(settings)
    return settings


def _models_of(arguments: dict[str, Any]) -> list[ModelSettings]:
    try:
        models = [ModelSettings.model_validate(model) for model in arguments["models"]]
    except ValidationError as error:
        raise SettingsError(f"the arguments of an application: {problems(error)}") from None
    model_names(models)
    return models


def targets(models: list[ModelSettings], timeouts: Timeouts) -> list[serve.RunTarget]:
    """Return all applications with their names and addresses; raises `PackageError` for a package that is not valid."""
    applications = [
        _target(model_application(model, timeouts), name, f"/models/{name}")
        for name, model in zip(model_names(models), models, strict=True)
    ]
    return [*applications, _target(gateway_application(models, timeouts), GATEWAY, "/")]


def _target(application: Application, name: str, route_prefix: str) -> serve.RunTarget:
    return serve.RunTarget(application, name=name, route_prefix=route_prefix, logging_config=RAY_LOGS)
