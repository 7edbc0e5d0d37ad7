"""Routes that tell how the service is doing: probes, metrics, and where to begin."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from service.api.calls import Tasks
from service.api.live import live
from service.api.observing import observed
from service.api.page import VARY
from service.draining import Draining
from service.errors import IsDraining, NotReady, ServiceError
from service.metrics import CONTENT_TYPE, Metrics
from service.schemas import Live, ModelHealth, Status
from service.tasks.task import ANONYMOUS, Task

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 5.0


def add_probe_routes(
    router: APIRouter, tasks: Tasks, metrics: Metrics, draining: Draining, *, needs_keys: bool
) -> None:
    """Add the routes; where keys are needed, probes without one learn of no model."""

    async def status(asked: Iterable[Task], fails_if: Callable[[Iterable[bool]], bool]) -> Status:
        return await _status(list(asked), fails_if, shows_models=not needs_keys or observed().client != ANONYMOUS)

    @router.get("/health")
    async def health() -> Status:
        """Tell whether this process is alive and any of its models makes progress; if none does, it must be replaced.

        One of several that makes none is opened anew in the process. The gateway has no model and asks none: that a
        model does not answer is no reason to replace the gateway.
        """
        return await status((task for task in tasks if not task.is_remote), all)

    @router.get("/ready")
    async def ready(
        one_is_enough: Annotated[bool, Query(alias="any", description="one model that answers is enough")] = False,
    ) -> Status:
        """Tell whether requests may come: every model answers, or sleeps, and the service is not shutting down.

        With `any=true`, one model that answers or sleeps is enough, so that a model that fails everywhere does not take
        every place out of traffic for all the others.
        """
        if draining.has_begun:
            raise IsDraining()
        return await status(tasks, all if one_is_enough else any)

    @router.get("/live")
    async def node_live() -> Live:
        """Tell how busy this node is, of its metrics the few numbers that are worth a look every second."""
        return live(await asyncio.to_thread(metrics.present), metrics.node)

    @router.get("/metrics", include_in_schema=False)
    async def node_metrics() -> Response:
        """Show the metrics of this node's processes, in Prometheus' text format."""
        return Response(await asyncio.to_thread(metrics.exposition), media_type=CONTENT_TYPE)

    @router.get("/", include_in_schema=False)
    async def index() -> Response:
        """Point at what there is; whoever asks for HTML gets the page instead."""
        return JSONResponse({"name": "trifold", "docs": "docs", "models": list(tasks.by_name)}, headers=VARY)


async def _status(asked: Sequence[Task], fails_if: Callable[[Iterable[bool]], bool], *, shows_models: bool) -> Status:
    """Return how models are doing; raises if `any` of them, or `all`, are stuck (`NotReady`) or do not answer."""
    answers = await asyncio.gather(*(_health(task) for task in asked))
    healths = [ModelHealth(is_progressing=False) if isinstance(each, Exception) else each for each in answers]
    models = {task.manifest.name: health for task, health in zip(asked, healths, strict=True)}
    stuck = [name for name, health in models.items() if not health.is_progressing]
    if stuck and fails_if(name in stuck for name in models):
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer  # says more
        raise NotReady(f"not making progress: {', '.join(stuck)}" if shows_models else "a model makes no progress")
    return Status(models=models if shows_models else {})


async def _health(task: Task) -> ModelHealth | Exception:
    """Return how a model is doing, or why it does not say so."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            return await task.health()
    except TimeoutError:
        return NotReady("a model does not answer")
    except ServiceError as error:
        return error
    except Exception as error:  # which nobody may see, if the others are well
        logger.exception("model %s does not say how it is doing", task.manifest.name)
        return error
