"""What runs in Serve's processes: replicas with their models, and the gateway to all of them.

`python -m service` and Serve's controller only name these classes. What they need is imported when one is made, so that
it takes none of the others' time and memory.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from model.package import PackageError
from service.logs import configure_logs
from service.models_file import ModelSettings
from service.pacing import paced
from service.replica_groups import names_by_alias
from service.settings import Settings
from service.settings_errors import SettingsError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from service.metrics import Metrics
    from service.schemas import AnyEvent, AnyRequest, ModelHealth, Response
    from service.tasks.reopening import ReopenedTask
    from service.tasks.task import LocalTask
    from service.tracing import Carried

logger = logging.getLogger(__name__)

# How long one thread keeps another waiting for the interpreter. A step takes it several times. By default it would wait
# 5 ms each time, longer than a small model computes, whenever the event loop writes somebody's long answer.
SWITCH_S = 0.0005
# New objects between collections, and how many collections of each age between those of the next; some hundred objects
# are a request's. Python's are 700, 10 and 10.
COLLECT_AFTER = (5000, 10, 20)


class Replica:
    """The models of a group in one process: their API, and the same tasks for the gateway's handle."""

    def __init__(self, models: Sequence[ModelSettings]) -> None:
        from ray import serve

        from service.accepting import accept_several
        from service.tasks.loading import load_task
        from service.tasks.reopening import ReopenedTask
        from service.tracing import Tracing

        self._settings, self._metrics = _settings_and_metrics()
        self._tracing = Tracing.of(self._settings)
        application, started = serve.get_replica_context().app_name, time.monotonic()
        loads = [partial(load_task, model, self._settings.limits, self._metrics, application) for model in models]
        self._tasks: list[LocalTask | ReopenedTask]
        with paced(self._settings.run_dir, application), _told():
            self._tasks = [loads[0]()] if len(loads) == 1 else [ReopenedTask(load) for load in loads]
            self._aliases = names_by_alias(models)
        self._by_name = {task.manifest.name: task for task in self._tasks}
        # As Ray reports the end of a process by its number alone.
        about = {"models": list(self._by_name), "pid": os.getpid()}
        logger.info("models opened in %.1f s", time.monotonic() - started, extra=about)
        self._asked = 0  # requests that had begun when Serve's controller was last told
        _settle_memory()
        sys.setswitchinterval(SWITCH_S)
        accept_several()

    def __serve_build_asgi_app__(self) -> FastAPI:  # Serve's name for it
        from service.api.app import create_app

        with _told():
            return create_app(
                self._tasks,
                self._settings,
                self._metrics,
                aliases=self._aliases,
                tracing=self._tracing,
                is_behind_serve=True,
            )

    async def predict(self, model: str, request: AnyRequest, client: str, carried: Carried) -> Response:
        """Answer a request from the gateway."""
        with self._tracing.carried_on("predict", carried):
            return await self._task(model).predict(request, client)

    async def stream(
        self, model: str, request: AnyRequest, client: str, carried: Carried
    ) -> AsyncGenerator[AnyEvent, None]:
        """Answer a request from the gateway piece by piece."""
        with self._tracing.carried_on("stream", carried):
            async with aclosing(self._task(model).stream(request, client)) as events:
                async for event in events:
                    yield event

    async def health(self, model: str) -> ModelHealth:
        """Tell the gateway how a task is doing."""
        return await self._task(model).health()

    def _task(self, model: str) -> LocalTask | ReopenedTask:
        """Return a model's task; raises `NotReady` where other models are served since this replica started."""
        from service.errors import NotReady

        if model not in self._by_name:
            raise NotReady("this replica has not this model; try again")
        return self._by_name[model]

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell Serve's controller, for `service.autoscaling`; models of one process share what it can bear.

        All but `asked` is of the moment, at which hardly any short request is there.
        """
        healths = [await task.health() for task in self._tasks]
        before, self._asked = self._asked, sum(task.asked for task in self._tasks)
        return {
            "asked": float(self._asked != before),
            "queued_tokens": sum(health.queued_tokens for health in healths),
            "slots_used": sum(health.slots_used for health in healths),
        }

    async def check_health(self) -> None:
        """Tell Serve, which replaces a replica whose check raises."""
        from service.tasks.reopening import must_be_replaced, reopen_failed

        reopen_failed(self._tasks)
        if must_be_replaced(self._tasks):
            raise RuntimeError("the engine makes no progress")


class Gateway:
    """All models under one address, in a process apart from them."""

    def __init__(self, models: Sequence[ModelSettings]) -> None:
        from service.accepting import accept_several

        self._settings, self._metrics = _settings_and_metrics()
        self._models = models
        accept_several()

    def __serve_build_asgi_app__(self) -> FastAPI:  # Serve's name for it
        from service.api.app import create_app
        from service.remote import remote_tasks

        with _told():
            tasks, aliases = remote_tasks(self._models), names_by_alias(self._models)
            return create_app(tasks, self._settings, self._metrics, aliases=aliases, is_behind_serve=True)


@contextmanager
def _told() -> Iterator[None]:
    """Log why a process cannot start, which Serve writes into a file of its own, and tries again."""
    try:
        yield
    except Exception as error:
        is_told = isinstance(error, PackageError | SettingsError)
        logger.error("the replica cannot start: %s", error, exc_info=not is_told)
        raise


def _settings_and_metrics() -> tuple[Settings, Metrics]:
    """Read the settings here, on whichever node this is, and log and count for this node."""
    from service.metrics import SECONDS, Metrics
    from service.metrics_port import export

    settings = Settings.read()
    configure_logs(settings.log_to, log_format=settings.log_format, level=settings.log_level)
    settings.check_exposure(settings.host)
    metrics = Metrics(settings.metrics_dir, settings.latency_buckets or SECONDS)
    export(metrics, settings.host, settings.metrics_port)
    return settings, metrics


def _settle_memory() -> None:
    """Give back what opening the models took, and keep the garbage collector from what lives as long as the process.

    Everybody would wait while it looks through that. The second collection finds next to nothing, and Python begins the
    next full one when a quarter as many objects have been added as the last one found: a quarter of the libraries'
    would be many requests that failed, each with its body of megabytes. But where thousands wait, each full one looks
    through all that they are made of: at Python's own thresholds that took a third of a busy event loop's time.
    """
    from model.package.heap import trim_heap

    trim_heap()
    gc.freeze()
    gc.collect()
    gc.set_threshold(*COLLECT_AFTER)
