"""The form that an error has for the client: our own, or that of the protocol whose route was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.errors import InvalidRequest, ServiceError


@dataclass(frozen=True)
class ErrorForm:
    """How a protocol writes errors: their JSON, and where its clients expect another status than ours."""

    body: Callable[[ServiceError], dict[str, Any]]
    statuses: Mapping[int, int] = field(default_factory=dict)

    def status(self, error: ServiceError) -> int:
        """Return the status of an error."""
        return self.statuses.get(error.status, error.status)


def _openai(error: ServiceError) -> dict[str, Any]:
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


NATIVE = ErrorForm(ServiceError.body)
OPENAI = ErrorForm(_openai, {InvalidRequest.status: 400})

# By the beginning of the path; the first that fits decides. A route that several protocols share begins with the native
# form, and takes another when it has seen whose body it is (`observed().error_form`).
FORMS: Mapping[str, ErrorForm] = {
    "/v1/": OPENAI,
}


def error_form(path: str) -> ErrorForm:
    """Return the form of a route's errors before its body is known."""
    return next((form for beginning, form in FORMS.items() if path.startswith(beginning)), NATIVE)
