"""Every error a client can meet, with its status.

ServiceError
├── BadRequest          400  the request is malformed, or broke off
├── NotJson             400  the body is not JSON
├── Unauthorized        401  no valid API key
├── Forbidden           403  a page of another site asks; Ray's routes, where keys are needed
├── NotFound            404  no such model or route
│   ├── UnknownModel    404  the model that was named is not here
│   └── NoModel         404  no model here does what is asked
├── MethodNotAllowed    405  the route exists, with another method
├── RequestTimeout      408  the body came too slowly
├── TooLarge            413  the body, or the number of inputs
├── Compressed          415  the body is compressed
├── InvalidRequest      422  a field has a value that is not allowed
│   ├── WrongForm       422  the body is not of the form that the route asks for
│   ├── EmptyInput      422  a list of inputs is empty, or a text that must have tokens
│   ├── TooLong         422  a text has more tokens than the model reads
│   └── WrongTask       422  the model is for something else
├── ServerOverloaded    429  no room to wait in; carries Retry-After
├── RateLimited         429  a limit of the API key; carries Retry-After
├── InternalError       500  ours
├── NotReady            503  starting, or a model does not answer
│   └── IsDraining      503  shutting down; another one may answer
└── DeadlineExceeded    504  not finished in time
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

RETRY_AFTER_S = 1
FULL = "too many requests are waiting; try again"
GOING = "the service is shutting down; try again, another one may answer"


class ServiceError(Exception):
    """An error with a sentence for the client; `param` names the field that is wrong.

    Only `args` travel when it is pickled between replicas, so both are kept there.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message, param)

    @property
    def message(self) -> str:
        """What was wrong, and what is allowed."""
        return str(self.args[0])

    @property
    def param(self) -> str | None:
        """The field that is wrong, if it is one."""
        param: str | None = self.args[1]
        return param

    def body(self) -> dict[str, Any]:
        """Return the JSON that the client gets."""
        return {"error": {"code": self.code, "message": self.message, "param": self.param}}

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        return {}


class BadRequest(ServiceError):
    """The request is malformed, or its connection was closed on the client's side before the answer."""

    status, code = 400, "bad_request"


class NotJson(ServiceError):
    """The body is not JSON."""

    status, code = 400, "not_json"


class Unauthorized(ServiceError):
    """No valid API key came with the request."""

    status, code = 401, "unauthorized"

    def headers(self) -> dict[str, str]:
        """Name the scheme, as RFC 9110 asks."""
        return {"WWW-Authenticate": "Bearer"}


class Forbidden(ServiceError):
    """A browser sent the request for a page of another site, or it is for what the service does not show."""

    status, code = 403, "forbidden"


class NotFound(ServiceError):
    """There is no such model or route."""

    status, code = 404, "not_found"


class UnknownModel(NotFound):
    """The model that was named is not here."""


class NoModel(NotFound):
    """No model here does what is asked."""


class MethodNotAllowed(ServiceError):
    """The route exists, with another method."""

    status, code = 405, "method_not_allowed"

    def __init__(self, message: str, param: str | None = None, allowed: Collection[str] = ()) -> None:
        super().__init__(message, param)
        self.args = (message, param, sorted(allowed))

    def headers(self) -> dict[str, str]:
        """Name the methods that the route has, as RFC 9110 asks."""
        return {"Allow": ", ".join(self.args[2])}


class RequestTimeout(ServiceError):
    """The body came too slowly."""

    status, code = 408, "request_timeout"

    def headers(self) -> dict[str, str]:
        """Close the connection, as the rest of the body is not waited for: to HAProxy, whose clients keep theirs."""
        return {"Connection": "close"}


class TooLarge(ServiceError):
    """The body has too many bytes or too many inputs."""

    status, code = 413, "too_large"


class Compressed(ServiceError):
    """The body is compressed, or encoded otherwise."""

    status, code = 415, "unsupported_encoding"

    def headers(self) -> dict[str, str]:
        """Say how the body is to come, as RFC 9110 asks."""
        return {"Accept-Encoding": "identity"}


class InvalidRequest(ServiceError):
    """A field has a value that is not allowed."""

    status, code = 422, "invalid_request"


class WrongForm(InvalidRequest):
    """The body is not of the form that the route asks for: a field is missing, or of another kind."""


class EmptyInput(InvalidRequest):
    """A list of inputs is empty, or a text that must have tokens."""


class TooLong(InvalidRequest):
    """A text has more tokens than the model reads."""


class WrongTask(InvalidRequest):
    """The model is for something else."""


class ServerOverloaded(ServiceError):
    """There is no room to wait in."""

    status, code = 429, "overloaded"

    def __init__(self, message: str = FULL, param: str | None = None) -> None:
        super().__init__(message, param)

    def headers(self) -> dict[str, str]:
        """Say when to come back."""
        return {"Retry-After": str(RETRY_AFTER_S)}


class RateLimited(ServiceError):
    """A limit of the API key is reached."""

    status, code = 429, "rate_limited"

    def __init__(self, message: str, param: str | None = None, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(message, param)
        self.args = (message, param, retry_after_s)

    def headers(self) -> dict[str, str]:
        """Say when there is room again."""
        return {"Retry-After": str(self.args[2])}


class InternalError(ServiceError):
    """Our own mistake; the client is told nothing of it."""


class NotReady(ServiceError):
    """The service is starting, or a model does not answer."""

    status, code = 503, "not_ready"

    def headers(self) -> dict[str, str]:
        """Say when to come back."""
        return {"Retry-After": str(RETRY_AFTER_S)}


class IsDraining(NotReady):
    """The service is shutting down."""

    code = "draining"

    def __init__(self, message: str = GOING, param: str | None = None) -> None:
        super().__init__(message, param)

    def headers(self) -> dict[str, str]:
        """Close the connection too: the next one may be made to a service that stays. HAProxy keeps its own open."""
        return {**super().headers(), "Connection": "close"}


class DeadlineExceeded(ServiceError):
    """The request was not finished in time."""

    status, code = 504, "deadline_exceeded"

    def headers(self) -> dict[str, str]:
        """Keep OpenAI's clients from asking twice more for what took too long."""
        return {"X-Should-Retry": "false"}
