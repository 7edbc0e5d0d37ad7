from __future__ import annotations

import pytest

from service.api.error_forms import NATIVE, OPENAI, error_form
from service.errors import InternalError, InvalidRequest, RateLimited, ServiceError, Unauthorized


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("n is 0", "n"), 400, "invalid_request_error"),
        (Unauthorized("a key is needed"), 401, "authentication_error"),
        (RateLimited("too many"), 429, "rate_limit_error"),
        (InternalError("ours"), 500, "server_error"),
    ],
)
def test_an_error_has_the_status_and_type_that_openais_clients_expect(
    error: ServiceError, status: int, kind: str
) -> None:
    assert OPENAI.status(error) == status
    assert OPENAI.body(error) == {
        "error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    }


def test_the_path_tells_the_form_before_the_body_is_read() -> None:
    assert error_form("/v1/embeddings") is OPENAI
    assert error_form("/embed") is NATIVE
