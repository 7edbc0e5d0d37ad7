"""`create_app`: routes, middleware and error answers over whatever tasks it is given."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from service import __version__
from service.api.addresses import ADDRESSED, MODELS, ModelAddresses
from service.api.bodies import BodyLimits, LimitBody
from service.api.calls import NO_ALIASES, SHOWN, Tasks
from service.api.cors import KNOWN_FOR_S, METHODS, READABLE
from service.api.deadline import KeepDeadline
from service.api.documents import add_documents, openapi
from service.api.forms import ReadForms
from service.api.invalid import first_problem
from service.api.keys import KeyRing, RequireKey
from service.api.leaving import FinishRequests
from service.api.middleware import AnswerHead, AnswerUnforeseen, ShedLoad, error_response, unforeseen
from service.api.observing import ObserveRequests, route_path
from service.api.origins import RefuseCrossSite
from service.api.page import ShowPage
from service.api.routes import add_routes
from service.draining import Draining
from service.errors import MethodNotAllowed, NotFound, NotJson, ServiceError, UnknownModel
from service.machine import memory_limit
from service.metrics import Metrics
from service.routing import ROUTES
from service.settings import Settings
from service.tasks.task import Task
from service.timeouts import Timeouts
from service.tracing import Tracing

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Classification, embedding, generation and translation by small transformers. "
    "Errors are `{error: {code, message, param}}`."
)


def create_app(
    tasks: Sequence[Task],
    settings: Settings,
    metrics: Metrics | None = None,
    *,
    aliases: Mapping[str, str] = NO_ALIASES,
    tracing: Tracing | None = None,
    is_behind_serve: bool = False,
) -> FastAPI:
    """Return the API of some models, and of each at its own address.

    `aliases` are further names that requests have for models. Without `metrics` or `tracing` it has its own. Its
    lifespan ends with the tasks closed, and with all spans sent.
    `is_behind_serve`: Ray Serve has given the request its `X-Request-ID` and returns it; else that is done here.
    """
    metrics, tracing, draining = metrics or Metrics(), tracing or Tracing.of(settings), Draining(settings.run_dir)
    for task in tasks:
        metrics.expect(task.manifest)

    keys = KeyRing(settings) if settings.needs_keys else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(keys.watch()) if keys is not None else None
        yield
        if watching is not None:
            watching.cancel()
        for error in await asyncio.gather(*(task.close() for task in tasks), return_exceptions=True):
            if error is not None:
                logger.error("a model was not closed", exc_info=error)
        await asyncio.to_thread(tracing.close)
        draining.close()
        logger.info("closed")

    app = FastAPI(
        title="Trifold",
        description=DESCRIPTION,
        version=__version__,
        # A body without a content type is taken for JSON. FastAPI would refuse it because pages of other sites can send
        # such a body without asking first; here RefuseCrossSite refuses all that they send, whatever its type.
        strict_content_type=False,
        redirect_slashes=False,  # behind TLS to http, where a key would go in the clear; ModelAddresses takes them off
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        lifespan=lifespan,
    )
    add_documents(app)

    all_tasks = Tasks(tasks, aliases)
    # To the application's own router: one that is included has its routes built a second time at the first request.
    add_routes(app.router, all_tasks, settings.limits, metrics, draining, needs_keys=settings.needs_keys)
    app.openapi = partial(openapi, app)  # type: ignore[method-assign]  # as FastAPI's documents say it is extended
    routes = [route.path_format for route in app.router.routes if isinstance(route, APIRoute)]
    observe = partial(ObserveRequests, metrics=metrics, tracing=tracing, routes=routes, returns_ids=not is_behind_serve)
    _add_middleware(app, all_tasks, settings, keys, draining, observe)
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unforeseen_error)
    return app


def _add_middleware(
    app: FastAPI,
    tasks: Tasks,
    settings: Settings,
    keys: KeyRing | None,
    draining: Draining,
    observe: Callable[[ASGIApp], ASGIApp],
) -> None:
    """Put around the routes what a request passes; what is added last it passes first."""
    limits = settings.limits
    body_limits = BodyLimits(limits.max_body_bytes, Timeouts.of(limits).body, memory_limit())
    app.add_middleware(AnswerHead)
    app.add_middleware(AnswerUnforeseen)
    app.add_middleware(ReadForms)
    app.add_middleware(LimitBody, limits=body_limits)
    app.add_middleware(ShedLoad, tasks=tasks)
    app.add_middleware(FinishRequests, draining=draining)
    if keys is not None:
        app.add_middleware(RequireKey, keys=keys, body_limits=body_limits)
    app.add_middleware(ShowPage)
    app.add_middleware(KeepDeadline, limits=limits)
    _admit_origins(app, settings)
    app.add_middleware(observe)
    app.add_middleware(ModelAddresses, names=tasks.by_name)


def _admit_origins(app: FastAPI, settings: Settings) -> None:
    """Let pages of the allowed sites use the API, and read its answers and errors, and no others.

    HAProxy does the same for what it answers itself (`service.ingress`).
    """
    if settings.allowed_origins:
        app.add_middleware(  # outside of the keys: a browser asks first, without one
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=METHODS,
            allow_headers=["*"],  # OpenAI's client for browsers sends a dozen of its own
            allow_private_network=True,  # of this machine too, which some browsers ask for apart
            expose_headers=READABLE,
            max_age=KNOWN_FOR_S,
        )
    app.add_middleware(RefuseCrossSite, allowed=settings.allowed_origins, trusts_names=settings.needs_keys)


async def _service_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return error_response(error)


async def _validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(first_problem(error.errors()))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == MethodNotAllowed.status:
        told = f"{request.url.path} does not answer {request.method}; see /docs"
        return error_response(MethodNotAllowed(told, allowed=_methods(request)))
    if error.status_code == NotFound.status:
        return error_response(_not_found(request))
    return error_response(NotJson("the body is not valid UTF-8 JSON, or has a number with too many digits"))


def _methods(request: Request) -> set[str]:
    """Return the methods of all routes of a path."""
    routes = [route for route in request.app.router.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in route.methods}
    return methods | {"HEAD"} if "GET" in methods else methods


def _not_found(request: Request) -> NotFound:
    """Return the error of a path that is no route, or the address of no model."""
    path = request.url.path
    name = path.removeprefix(MODELS).partition("/")[0]
    if path.startswith(MODELS) and name and ADDRESSED not in request.scope:
        return UnknownModel(f"there is no model {name[:SHOWN]!r} here; GET /v1/models lists those there are")
    if f"/v1{route_path(request.scope)}" in ROUTES:
        return NotFound(f"there is no route {path}; a base URL of OpenAI's clients ends with /v1")
    return NotFound(f"there is no route {path}; see /docs")


async def _unforeseen_error(_request: Request, error: Exception) -> Response:
    return unforeseen(error)  # of a middleware, or of a stream that has begun
