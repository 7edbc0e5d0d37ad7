"""The native routes. Each finds its task, calls it, and returns the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from model.package import TaskName
from service.api.answers import json_answer
from service.api.calls import Calls, Tasks
from service.api.decoder_routes import add_decoder_routes
from service.api.encoder_routes import add_encoder_routes
from service.api.explain_routes import add_explain_routes
from service.api.live import live
from service.api.observing import observed
from service.api.page import VARY
from service.api.protocols.deepl import add_deepl_routes
from service.api.protocols.huggingface.routes import add_huggingface_routes
from service.api.protocols.libretranslate.routes import add_libretranslate_routes
from service.api.protocols.openai.routes import add_openai_routes
from service.api.protocols.rerank import add_rerank_routes
from service.api.protocols.tei.routes import add_tei_routes
from service.api.shared_routes import add_shared_routes
from service.api.streaming import event_stream
from service.draining import Draining
from service.errors import IsDraining, NotReady
from service.metrics import CONTENT_TYPE, Metrics
from service.schemas import (
    AnyRequest,
    DetokenizeRequest,
    DetokenizeResponse,
    Live,
    Status,
)
from service.settings import Limits
from service.tasks.task import ANONYMOUS, Task

PROBE_TIMEOUT_S = 5.0


def make_router(
    tasks: Tasks, limits: Limits, metrics: Metrics, draining: Draining, *, needs_keys: bool = False
) -> APIRouter:
    """Return the native routes over some tasks; where keys are needed, probes without one learn of no model."""
    router = APIRouter()

    calls = Calls(tasks, limits)

    async def whole(request: AnyRequest, kind: TaskName | None) -> Any:
        return await json_answer(await calls.answer(request, kind))

    async def streamed(request: AnyRequest, kind: TaskName) -> Response:
        return await event_stream(calls.events(request, kind), limits.keep_alive_s)

    async def status(asked: Iterable[Task], fails_if: Callable[[Iterable[bool]], bool]) -> Status:
        return await _status(list(asked), fails_if, shows_models=not needs_keys or observed().client != ANONYMOUS)

    add_encoder_routes(router, whole)

    add_decoder_routes(router, whole, streamed)

    add_explain_routes(router, whole)

    add_shared_routes(router, calls)

    add_openai_routes(router, calls)

    add_tei_routes(router, calls)

    add_rerank_routes(router, calls)

    add_huggingface_routes(router, calls, limits.keep_alive_s)

    add_libretranslate_routes(router, calls, needs_keys=needs_keys)

    add_deepl_routes(router, calls)

    @router.post("/detokenize")
    async def detokenize(request: DetokenizeRequest) -> DetokenizeResponse:
        """Return the texts of token ids."""
        return await whole(request, None)  # type: ignore[no-any-return]  # the task answers in kind

    @router.get("/health")
    async def health() -> Status:
        """Tell whether this process is alive and any of its models makes progress; if none does, it must be replaced.

        One of several that makes none is opened anew in the process. The gateway has no model and asks none: that a
        model does not answer is no reason to replace the gateway.
        """
        return await status((task for task in tasks if not task.is_remote), all)

    @router.get("/ready")
    async def ready() -> Status:
        """Tell whether requests may come: every model answers, or sleeps, and the service is not shutting down."""
        if draining.has_begun:
            raise IsDraining()
        return await status(tasks, any)

    @router.get("/live")
    async def node_live() -> Live:
        """Tell how busy this node is, of its metrics the few numbers that are worth a look every second."""
        return live(await asyncio.to_thread(metrics.present))

    @router.get("/metrics", include_in_schema=False)
    async def node_metrics() -> Response:
        """Show the metrics of this node's processes, in Prometheus' text format."""
        return Response(await asyncio.to_thread(metrics.exposition), media_type=CONTENT_TYPE)

    @router.get("/", include_in_schema=False)
    async def index() -> Response:
        """Point at what there is; whoever asks for HTML gets the page instead."""
        return JSONResponse({"name": "trifold", "docs": "docs", "models": list(tasks.by_name)}, headers=VARY)

    return router


async def _status(asked: Sequence[Task], fails_if: Callable[[Iterable[bool]], bool], *, shows_models: bool) -> Status:
    """Return how models are doing; raises `NotReady` if `any` of them, or `all`, are stuck."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            healths = await asyncio.gather(*(task.health() for task in asked))
    except TimeoutError:
        raise NotReady("a model does not answer") from None
    models = {task.manifest.name: health for task, health in zip(asked, healths, strict=True)}
    stuck = [name for name, health in models.items() if not health.is_progressing]
    if stuck and fails_if(name in stuck for name in models):
        raise NotReady(f"not making progress: {', '.join(stuck)}" if shows_models else "a model makes no progress")
    return Status(models=models if shows_models else {})
