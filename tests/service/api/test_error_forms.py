from __future__ import annotations

import pytest

from service.api.error_forms import HUGGING_FACE, NATIVE, OPENAI, TEI, error_form
from service.errors import (
    Forbidden,
    InternalError,
    InvalidRequest,
    NotReady,
    RateLimited,
    ServerOverloaded,
    ServiceError,
    TooLong,
    Unauthorized,
    UnknownModel,
)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (InvalidRequest("n is 0", "n"), 400, "invalid_request_error", "invalid_request"),
        (Unauthorized("a key is needed"), 401, "authentication_error", "invalid_api_key"),
        (Forbidden("not yours"), 403, "permission_error", "forbidden"),
        (RateLimited("too many"), 429, "rate_limit_error", "rate_limited"),
        (InternalError("ours"), 500, "server_error", "internal_error"),
        (UnknownModel("there is no model 'a'", "model"), 404, "invalid_request_error", "model_not_found"),
    ],
)
def test_an_error_has_the_status_and_type_that_openais_clients_expect(
    error: ServiceError, status: int, kind: str, code: str
) -> None:
    assert OPENAI.status(error) == status
    assert OPENAI.body(error)["error"] == {**error.body()["error"], "type": kind, "code": code}


@pytest.mark.parametrize(
    ("error", "kind"),
    [(RateLimited("too many"), "Overloaded"), (ServerOverloaded(), "Overloaded"), (NotReady("soon"), "Unhealthy")],
)
def test_an_error_has_the_type_that_teis_clients_expect(error: ServiceError, kind: str) -> None:
    assert TEI.body(error) == {"error": error.message, "error_type": kind}


def test_a_text_that_is_too_long_is_told_in_the_words_that_openais_clients_look_for() -> None:
    error = TooLong("prompt has 700 tokens; the limit is 511", "prompt")

    told = OPENAI.body(error)["error"]

    assert told["code"] == "context_length_exceeded" and error.body()["error"]["code"] == "invalid_request"
    exceeded = "This model's maximum context length is exceeded (context_length_exceeded): "
    assert told["message"] == exceeded + "prompt has 700 tokens; the limit is 511"


def test_the_path_tells_the_form_before_the_body_is_read() -> None:
    assert error_form("/v1/embeddings") is OPENAI
    assert error_form("/embed") is NATIVE


def test_below_the_address_of_no_model_errors_have_the_form_of_what_follows() -> None:
    assert error_form("/models/nobody/v1/chat/completions") is OPENAI
    assert error_form("/models/nobody") is HUGGING_FACE
    assert error_form("/models/nobody/classify") is NATIVE
