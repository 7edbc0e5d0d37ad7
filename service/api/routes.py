"""The native routes. Each finds its task, calls it, and returns the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from model.package import Task as TaskName
from service.api.observing import observed
from service.api.streaming import event_stream
from service.errors import DeadlineExceeded, InvalidRequest, NotFound, NotReady, TooLarge
from service.metrics import CONTENT_TYPE, Metrics
from service.schemas import (
    AnyEvent,
    AnyRequest,
    ClassifyRequest,
    ClassifyResponse,
    DetokenizeRequest,
    DetokenizeResponse,
    EmbedRequest,
    EmbedResponse,
    GenerateRequest,
    GenerateResponse,
    ModelCard,
    ModelList,
    Status,
    TokenizeRequest,
    TokenizeResponse,
    TranslateRequest,
    TranslateResponse,
)
from service.settings import Limits
from service.tasks.task import Task

PROBE_TIMEOUT_S = 5.0


class Tasks:
    """The tasks under one address, found by a model's name or by what they are for."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.by_name = {task.manifest.name: task for task in tasks}

    def find(self, model: str | None, kind: TaskName | None) -> Task:
        """Return the named model, or the only one of its kind; raises `NotFound`, `InvalidRequest`."""
        if model is not None:
            return self._named(model, kind)
        fitting = [task for task in self.by_name.values() if kind in {None, task.manifest.task}]
        if not fitting:
            raise NotFound(f"there is no model for {kind} here; there are {self._names()}", "model")
        if len(fitting) > 1:
            names = ", ".join(task.manifest.name for task in fitting)
            raise InvalidRequest(f"model is needed, as several fit: {names}", "model")
        return fitting[0]

    def _named(self, model: str, kind: TaskName | None) -> Task:
        if model not in self.by_name:
            raise NotFound(f"there is no model {model!r}; there are {self._names()}", "model")
        task = self.by_name[model]
        if kind not in {None, task.manifest.task}:
            raise InvalidRequest(f"model {model!r} is for {task.manifest.task}, not for {kind}", "model")
        return task

    def _names(self) -> str:
        return ", ".join(f"{name} ({task.manifest.task})" for name, task in self.by_name.items())


def make_router(tasks: Tasks, limits: Limits, metrics: Metrics) -> APIRouter:
    """Return the native routes over some tasks."""
    router = APIRouter()

    def found(request: AnyRequest, kind: TaskName | None) -> Task:
        task = tasks.find(request.model, kind)
        observed().model, observed().task = task.manifest.name, kind or task.manifest.task
        return task

    async def answer(request: AnyRequest, kind: TaskName | None) -> Any:
        task = found(request, kind)
        check_inputs(request, limits)
        try:
            async with asyncio.timeout(limits.request_timeout_s):
                return await task.predict(request)
        except TimeoutError:
            raise _deadline(limits) from None

    async def stream(request: AnyRequest, kind: TaskName) -> Response:
        task = found(request, kind)
        check_inputs(request, limits)
        return await event_stream(until_deadline(task, request, limits))

    @router.post("/classify")
    async def classify(request: ClassifyRequest) -> ClassifyResponse:
        """Label texts, pairs of texts, or images."""
        return await answer(request, "classify")  # type: ignore[no-any-return]  # the task answers in kind

    @router.post("/embed")
    async def embed(request: EmbedRequest) -> EmbedResponse:
        """Map texts to vectors that are near one another where the texts mean alike."""
        return await answer(request, "embed")  # type: ignore[no-any-return]  # the task answers in kind

    @router.post("/generate", response_model=GenerateResponse, response_model_exclude_none=True)
    async def generate(request: GenerateRequest) -> Any:
        """Continue prompts, by sampling, greedily or by beam search; whole, or as server-sent events."""
        return await (stream(request, "generate") if request.stream else answer(request, "generate"))

    @router.post("/translate", response_model=TranslateResponse, response_model_exclude_none=True)
    async def translate(request: TranslateRequest) -> Any:
        """Translate texts of any number of sentences."""
        return await (stream(request, "translate") if request.stream else answer(request, "translate"))

    @router.post("/tokenize")
    async def tokenize(request: TokenizeRequest) -> TokenizeResponse:
        """Show the tokens of texts."""
        return await answer(request, None)  # type: ignore[no-any-return]  # the task answers in kind

    @router.post("/detokenize")
    async def detokenize(request: DetokenizeRequest) -> DetokenizeResponse:
        """Return the texts of token ids."""
        return await answer(request, None)  # type: ignore[no-any-return]  # the task answers in kind

    @router.get("/v1/models")
    async def models() -> ModelList:
        """List the models, what they are for, and how good they were measured to be."""
        return ModelList(data=[model_card(task) for task in tasks.by_name.values()])

    @router.get("/health")
    async def health() -> Status:
        """Tell whether the process is alive and makes progress."""
        return await _status(tasks)

    @router.get("/ready")
    async def ready() -> Status:
        """Tell whether traffic may come."""
        return await _status(tasks)

    @router.get("/metrics", include_in_schema=False)
    async def node_metrics() -> Response:
        """Show the metrics of this node's processes, in Prometheus' text format."""
        return Response(await asyncio.to_thread(metrics.exposition), media_type=CONTENT_TYPE)

    @router.get("/", include_in_schema=False)
    async def index() -> Response:
        """Point at what there is."""
        return JSONResponse({"name": "trifold", "docs": "docs", "models": list(tasks.by_name)})

    return router


def check_inputs(request: AnyRequest, limits: Limits) -> None:
    """Refuse more inputs than one request may bring."""
    param, count = request.count_inputs()
    if count > limits.max_inputs:
        raise TooLarge(f"{param} asks for {count} answers; the limit is {limits.max_inputs} for one request", param)


async def until_deadline(task: Task, request: AnyRequest, limits: Limits) -> AsyncGenerator[AnyEvent, None]:
    """Yield a task's events; raises `DeadlineExceeded` when they take too long."""
    deadline = asyncio.get_running_loop().time() + limits.request_timeout_s
    async with aclosing(task.stream(request)) as events:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise _deadline(limits) from None
            yield event


def model_card(task: Task) -> ModelCard:
    """Describe a model."""
    manifest = task.manifest
    return ModelCard(
        id=manifest.name,
        task=manifest.task,
        description=manifest.description,
        not_for=manifest.not_for,
        licence=manifest.licence,
        precision=manifest.precision,
        labels=manifest.labels,
        image_size=manifest.image.size if manifest.image else None,
        directions=manifest.directions,
        max_input_tokens=manifest.limits.max_input_tokens,
        max_positions=manifest.limits.max_positions,
        evaluation=[figure.model_dump() for figure in manifest.evaluation],
    )


async def _status(tasks: Tasks) -> Status:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            healths = await asyncio.gather(*(task.health() for task in tasks.by_name.values()))
    except TimeoutError:
        raise NotReady("a model does not answer") from None
    models = dict(zip(tasks.by_name, healths, strict=True))
    stuck = [name for name, health in models.items() if not health.is_progressing]
    if stuck:
        raise NotReady(f"not making progress: {', '.join(stuck)}")
    return Status(models=models)


def _deadline(limits: Limits) -> DeadlineExceeded:
    return DeadlineExceeded(f"not finished within {limits.request_timeout_s:g} s; ask for less at a time")
