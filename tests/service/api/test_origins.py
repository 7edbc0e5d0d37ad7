from __future__ import annotations

from typing import Any

import pytest

from tests.service.api.conftest import Client, OpenClient

BODY = {"input": ["good"]}


async def ask(client: Client, method: str = "POST", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = "/classify" if method == "POST" else "/v1/models"
    response = await client.request(method, path, json=BODY if method == "POST" else None, headers=named)
    return response.status_code


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://evil.example", "sec_fetch_site": "cross-site"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9000"},  # another server of this machine
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "image"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"},
        {"origin": "http://rebound.example:8000", "host": "rebound.example:8000"},  # its name points here by now
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_what_a_page_of_another_site_asks_is_refused(
    open_client: OpenClient, method: str, headers: dict[str, str]
) -> None:
    async with open_client("sentiment") as client:
        assert await ask(client, method, **{"host": "127.0.0.1:8000", **headers}) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},  # no browser
        {"origin": "http://127.0.0.1:8000", "sec_fetch_site": "same-origin"},
        {"origin": "http://localhost:8000", "host": "localhost:8000"},
        {"origin": "http://[::1]:8000", "host": "[::1]:8000"},
        {"origin": "https://10.0.0.7", "host": "10.0.0.7"},  # TLS ended before us
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "same-origin"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_what_a_program_or_the_services_own_page_asks_is_answered(
    open_client: OpenClient, method: str, headers: dict[str, str]
) -> None:
    async with open_client("sentiment") as client:
        assert await ask(client, method, **{"host": "127.0.0.1:8000", **headers}) == 200


async def test_a_link_from_another_site_may_be_followed_and_a_form_may_not(open_client: OpenClient) -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    async with open_client("sentiment") as client:
        assert await ask(client, "GET", **link) == 200
        assert await ask(client, "POST", **link) == 403


async def test_a_body_without_a_content_type_is_json_from_a_program_and_refused_from_a_page(
    open_client: OpenClient,
) -> None:
    async with open_client("sentiment") as client:
        from_program = await client.post("/classify", content=b'{"input": ["good"]}')
        from_page = await client.post(
            "/classify", content=b'{"input": ["good"]}', headers={"origin": "http://evil.example"}
        )

    assert (from_program.status_code, from_page.status_code) == (200, 403)
    assert from_page.json()["error"]["code"] == "forbidden"


async def test_where_keys_are_needed_the_services_own_name_is_enough(open_client: OpenClient) -> None:
    async with open_client("sentiment", settings={"api_keys": ["secret"]}) as client:
        named = {"origin": "https://trifold.example", "host": "trifold.example"}
        assert await ask(client, **named) == 401
        assert await ask(client, **named, x_api_key="secret") == 200


ALLOWED: dict[str, Any] = {"allowed_origins": ["https://app.example"], "api_keys": ["secret"]}


async def test_pages_of_an_allowed_origin_may_ask_and_read_answers_and_errors(open_client: OpenClient) -> None:
    headers = {"origin": "https://app.example", "sec-fetch-site": "cross-site"}
    async with open_client("sentiment", settings=ALLOWED) as client:
        answer = await client.post("/classify", json=BODY, headers={**headers, "x-api-key": "secret"})
        refused = await client.post("/classify", json=BODY, headers=headers)

    assert (answer.status_code, refused.status_code) == (200, 401)
    for response in (answer, refused):
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        readable = response.headers["access-control-expose-headers"].split(", ")
        assert {"X-Request-ID", "X-Should-Retry"} <= set(readable)


@pytest.mark.parametrize(("origin", "status"), [("https://app.example", 200), ("https://evil.example", 403)])
@pytest.mark.parametrize("method", ["POST", "GET", "HEAD"])
async def test_a_browser_may_ask_first_without_a_key(
    open_client: OpenClient, method: str, origin: str, status: int
) -> None:
    headers = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-private-network": "true",
        "access-control-request-headers": "content-type,x-api-key,x-stainless-lang,x-stainless-retry-count",
    }
    async with open_client("sentiment", settings=ALLOWED) as client:
        response = await client.options("/classify", headers=headers)

    assert response.status_code == status
    assert response.headers.get("access-control-allow-origin") == (origin if status == 200 else None)


async def test_a_page_of_an_allowed_site_reads_that_the_server_failed(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.tasks.task.LocalTask.predict", lambda *_: 1 / 0)
    async with open_client("sentiment", settings=ALLOWED) as client:
        headers = {"origin": "https://app.example", "x-api-key": "secret"}
        answer = await client.post("/classify", json=BODY, headers=headers)

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "X-Request-ID" in answer.headers
