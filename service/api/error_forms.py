"""The form that an error has for the client: our own, or that of the protocol whose route was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.errors import (
    EmptyInput,
    InvalidRequest,
    NoModel,
    NotReady,
    RateLimited,
    ServerOverloaded,
    ServiceError,
    WrongForm,
    WrongTask,
)


@dataclass(frozen=True)
class ErrorForm:
    """How a protocol writes errors: their JSON, and for which errors its clients expect another status than ours."""

    body: Callable[[ServiceError], dict[str, Any]]
    statuses: Mapping[type[ServiceError], int] = field(default_factory=dict)

    def status(self, error: ServiceError) -> int:
        """Return the status of an error."""
        return next((self.statuses[kind] for kind in type(error).__mro__ if kind in self.statuses), error.status)


def _openai(error: ServiceError) -> dict[str, Any]:
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def _tei(error: ServiceError) -> dict[str, Any]:
    kind = next((kind for classes, kind in _TEI_TYPES.items() if isinstance(error, classes)), None)
    return {"error": error.message, "error_type": kind or ("Backend" if error.status >= 500 else "Validation")}


_TEI_TYPES: Mapping[tuple[type[ServiceError], ...], str] = {
    (EmptyInput,): "Empty",
    (WrongTask, NoModel): "Backend",
    (ServerOverloaded, RateLimited): "Overloaded",
    (NotReady,): "Unhealthy",
}


NATIVE = ErrorForm(ServiceError.body)
OPENAI = ErrorForm(_openai, {InvalidRequest: 400})
# Of the text-embeddings-inference server. It has one status for texts that are too long and for too many of them, and
# leaves 422 to bodies that it cannot read.
TEI = ErrorForm(_tei, {InvalidRequest: 413, WrongForm: 422, EmptyInput: 400, WrongTask: 424, NoModel: 424})
JINA = ErrorForm(lambda error: {"detail": error.message})
COHERE = ErrorForm(lambda error: {"message": error.message}, {InvalidRequest: 400})
HUGGING_FACE = ErrorForm(lambda error: {"error": error.message})

# By the beginning of the path; the first that fits decides. A route that several protocols share begins with the native
# form, and takes another when it has seen whose body it is (`observed().error_form`).
FORMS: Mapping[str, ErrorForm] = {
    "/predict": TEI,
    "/embed_": TEI,
    "/similarity": TEI,
    "/decode": TEI,
    "/info": TEI,
    "/v1/rerank": JINA,
    "/v2/rerank": COHERE,
    "/pipeline/": HUGGING_FACE,
    "/v1/": OPENAI,
}


def error_form(path: str) -> ErrorForm:
    """Return the form of a route's errors before its body is known."""
    if path in {"", "/"}:
        return HUGGING_FACE
    return next((form for beginning, form in FORMS.items() if path.startswith(beginning)), NATIVE)
