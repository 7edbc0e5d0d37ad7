"""All routes, each in the module of its kind. It finds its task, calls it, and returns the answer."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from model.package import TaskName
from service.api.answers import json_answer
from service.api.calls import Calls, Tasks
from service.api.decoder_routes import add_decoder_routes
from service.api.encoder_routes import add_encoder_routes
from service.api.explain_routes import add_explain_routes
from service.api.probe_routes import add_probe_routes
from service.api.protocols.deepl import add_deepl_routes
from service.api.protocols.huggingface.routes import add_huggingface_routes
from service.api.protocols.libretranslate.routes import add_libretranslate_routes
from service.api.protocols.openai.routes import add_openai_routes
from service.api.protocols.rerank import add_rerank_routes
from service.api.protocols.tei.routes import add_tei_routes
from service.api.shared_routes import add_shared_routes
from service.api.streaming import event_stream
from service.draining import Draining
from service.metrics import Metrics
from service.schemas import AnyRequest
from service.settings import Limits


def add_routes(
    router: APIRouter,
    tasks: Tasks,
    limits: Limits,
    metrics: Metrics,
    draining: Draining,
    *,
    needs_keys: bool = False,
) -> None:
    """Add all routes over some tasks; where keys are needed, probes without one learn of no model."""
    calls = Calls(tasks, limits)

    async def whole(request: AnyRequest, kind: TaskName | None) -> Any:
        return await json_answer(await calls.answer(request, kind))

    async def streamed(request: AnyRequest, kind: TaskName) -> Response:
        return await event_stream(calls.events(request, kind), limits.keep_alive_s)

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
    add_probe_routes(router, tasks, metrics, draining, needs_keys=needs_keys)
