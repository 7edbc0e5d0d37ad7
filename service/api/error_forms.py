"""The form that an error has for the client: our own, or that of the protocol whose route was asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from service.errors import (
    DeadlineExceeded,
    EmptyInput,
    InternalError,
    InvalidRequest,
    NoModel,
    NotReady,
    RateLimited,
    ServerOverloaded,
    ServiceError,
    TooLarge,
    TooLong,
    Unauthorized,
    UnknownModel,
    WrongForm,
    WrongTask,
)


class NativeProblem(BaseModel):
    """What was wrong, and which field, if it is one."""

    code: str
    message: str
    param: str | None


class NativeError(BaseModel):
    """An error of the native routes."""

    error: NativeProblem


class OpenAIProblem(BaseModel):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(BaseModel):
    """An error in OpenAI's form."""

    error: OpenAIProblem


class TEIError(BaseModel):
    """An error of Text Embeddings Inference."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]


class JinaError(BaseModel):
    """An error in Jina's form."""

    detail: str


class CohereError(BaseModel):
    """An error in Cohere's form."""

    message: str


class HuggingFaceError(BaseModel):
    """An error in the form of Hugging Face Inference; its kind is TGI's, whose clients look for it."""

    error: str
    error_type: Literal["validation", "overloaded", "generation"] | None = None


class LibreTranslateError(BaseModel):
    """An error of LibreTranslate."""

    error: str


class DeepLError(BaseModel):
    """An error in DeepL's form."""

    message: str


@dataclass(frozen=True)
class ErrorForm:
    """How a protocol writes errors: their JSON, its schema, and other statuses than ours where clients expect them."""

    body: Callable[[ServiceError], dict[str, Any]]
    model: type[BaseModel]
    statuses: Mapping[type[ServiceError], int] = field(default_factory=dict)

    def status(self, error: ServiceError) -> int:
        """Return the status of an error."""
        return next((self.statuses[kind] for kind in type(error).__mro__ if kind in self.statuses), error.status)


# What clients that have other models to turn to look for: LangChain and litellm in the message, others in the code.
_OPENAI_CODES: Mapping[type[ServiceError], str] = {
    TooLong: "context_length_exceeded",
    UnknownModel: "model_not_found",
    NoModel: "model_not_found",
    Unauthorized: "invalid_api_key",
}
# OpenAI's client shows nothing but the message, in which LangChain looks for the code.
_TOO_LONG = "This model's maximum context length is exceeded (context_length_exceeded): "


def _openai(error: ServiceError) -> dict[str, Any]:
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    code = _OPENAI_CODES.get(type(error), error.code)
    message = _TOO_LONG + error.message if isinstance(error, TooLong) else error.message
    return {"error": {"message": message, "type": kind, "param": error.param, "code": code}}


def _tei(error: ServiceError) -> dict[str, Any]:
    kind = next((kind for classes, kind in _TEI_TYPES.items() if isinstance(error, classes)), None)
    return {"error": error.message, "error_type": kind or ("Backend" if error.status >= 500 else "Validation")}


_TEI_TYPES: Mapping[tuple[type[ServiceError], ...], str] = {
    (EmptyInput,): "Empty",
    (WrongTask, NoModel): "Backend",
    (ServerOverloaded, RateLimited): "Overloaded",
    (NotReady,): "Unhealthy",
}


def _hugging_face(error: ServiceError) -> dict[str, Any]:
    kind = next((kind for classes, kind in _TGI_TYPES.items() if isinstance(error, classes)), None)
    return {"error": error.message, **({"error_type": kind} if kind else {})}


_TGI_TYPES: Mapping[tuple[type[ServiceError], ...], str] = {
    (ServerOverloaded, RateLimited): "overloaded",
    (InvalidRequest, TooLarge): "validation",
    (InternalError, NotReady, DeadlineExceeded): "generation",
}


NATIVE = ErrorForm(ServiceError.body, NativeError)
OPENAI = ErrorForm(_openai, OpenAIError, {InvalidRequest: 400})
# Of the text-embeddings-inference server. It has one status for texts that are too long and for too many of them, and
# leaves 422 to bodies that it cannot read.
TEI = ErrorForm(_tei, TEIError, {InvalidRequest: 413, WrongForm: 422, EmptyInput: 400, WrongTask: 424, NoModel: 424})
JINA = ErrorForm(lambda error: {"detail": error.message}, JinaError)
COHERE = ErrorForm(lambda error: {"message": error.message}, CohereError, {InvalidRequest: 400})
LIBRETRANSLATE = ErrorForm(
    lambda error: {"error": error.message},
    LibreTranslateError,
    {InvalidRequest: 400, NoModel: 400, Unauthorized: 403},
)
DEEPL = ErrorForm(
    lambda error: {"message": error.message}, DeepLError, {InvalidRequest: 400, NoModel: 400, Unauthorized: 403}
)
HUGGING_FACE = ErrorForm(_hugging_face, HuggingFaceError)

# By the beginning of the path; the first that fits decides. A route that several protocols share begins with the native
# form, and takes another when it has seen whose body it is (`observed().error_form`).
FORMS: Mapping[str, ErrorForm] = {
    "/predict": TEI,
    "/embed_all": TEI,
    "/similarity": TEI,
    "/decode": TEI,
    "/info": TEI,
    "/v1/rerank": JINA,
    "/v2/rerank": COHERE,
    "/v2/": DEEPL,
    "/v3/": DEEPL,
    "/detect": LIBRETRANSLATE,
    "/languages": LIBRETRANSLATE,
    "/frontend/": LIBRETRANSLATE,
    "/suggest": LIBRETRANSLATE,
    "/translate_file": LIBRETRANSLATE,
    "/pipeline/": HUGGING_FACE,
    "/generate_stream": HUGGING_FACE,
    "/v1/": OPENAI,
    "/embeddings": OPENAI,
}
# The other form of paths that two protocols share.
SHARED: Mapping[str, ErrorForm] = {
    "/embed": TEI,
    "/embed_sparse": TEI,
    "/rerank": TEI,
    "/tokenize": TEI,
    "/translate": LIBRETRANSLATE,
    "/generate": HUGGING_FACE,
}
_ADDRESS = re.compile(r"^/models/[^/]+")  # of a model that is here it is no part of the path any more


def error_form(path: str) -> ErrorForm:
    """Return the form of a route's errors before its body is known; the same below the address of no model."""
    path = _ADDRESS.sub("", path)
    if path in {"", "/"}:
        return HUGGING_FACE
    return next((form for beginning, form in FORMS.items() if path.startswith(beginning)), NATIVE)
