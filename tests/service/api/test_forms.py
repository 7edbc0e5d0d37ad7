"""Forms and query strings mean what JSON means, and may have the API key in them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from service.api.forms import as_json
from service.api.keys import key_in
from service.keys import hash_of
from tests.service.api.conftest import Client, OpenClient, post
from tests.service.garbage import frozen

DAN = "Dan loves ice cream & cake. 100 % = all, å “é”."
FIELDS: dict[str, Any] = {"q": DAN, "source": "en", "target": "sv", "alternatives": "1"}


@pytest.fixture
async def client(open_client: OpenClient) -> Any:
    async with open_client("translate") as client:
        yield client


async def test_a_form_and_a_query_string_mean_what_json_means(client: Client) -> None:
    expected = await post(client, "/translate", **FIELDS)
    form = await client.post("/translate", data=FIELDS)
    query = await client.post("/translate", params=FIELDS)
    both = await client.post("/translate", params={"target": "sv"}, data={"q": DAN, "source": "en", "alternatives": 1})
    listed = await client.post("/translate", data={**FIELDS, "q": [DAN, "Good."]})
    detected = await client.post("/detect", data={"q": DAN})

    assert form.json() == query.json() == both.json() == expected
    assert listed.json()["translatedText"][0] == expected["translatedText"]
    assert detected.json()[0]["language"] == "en"


async def test_a_form_that_is_wrong_is_told_so_in_libretranslates_form(client: Client) -> None:
    response = await client.post("/translate", data={"q": "x"})
    assert response.status_code == 400 and response.json() == {"error": "target: Field required"}
    many = await client.post("/translate", data={f"x{place}": "" for place in range(2000)})
    assert many.status_code == 413 and many.json() == {"error": "the form has more than 1024 fields"}


@pytest.mark.parametrize(
    "body", [b"q=caf%E9&target=sv", "q=café&target=sv".encode("latin-1"), b"q=%ED%A0%80&target=sv"]
)
async def test_a_form_in_another_encoding_is_refused_and_not_translated_wrongly(client: Client, body: bytes) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded; charset=iso-8859-1"}
    form = await client.post("/translate", content=body, headers=headers)
    query = await client.post("/translate?q=caf%E9&target=sv")
    of_deepl = await client.post("/v2/translate", content=body.replace(b"q=", b"text="), headers=headers)

    assert (form.status_code, query.status_code, of_deepl.status_code) == (400, 400, 400)
    assert form.json() == query.json() == {"error": "q is not in UTF-8, as a form has to be"}
    assert of_deepl.json() == {"message": "text is not in UTF-8, as a form has to be"}


async def test_a_form_in_parts_is_refused_by_its_name(client: Client) -> None:
    for path in ("/translate", "/detect", "/v2/translate"):
        response = await client.post(path, files={"q": (None, DAN), "target": (None, "sv")})
        assert response.status_code in {400, 422}, path
        assert "the body is multipart/form-data; send JSON or application/x-www-form-urlencoded" in response.text
    refused = await client.post("/translate", files={"q": (None, DAN)})
    assert isinstance(refused.json()["error"], str)  # as LibreTranslate says it


async def test_other_routes_take_json_alone(client: Client) -> None:
    response = await client.post("/tokenize", data={"input": "x"})

    assert response.status_code == 422 and "application/json" in response.json()["error"]["message"]


def test_fields_that_come_again_are_lists() -> None:
    assert json.loads(as_json(b"text=a+b&text=%C3%A5&target_lang=SV&empty=")) == {
        "text": ["a b", "å"],
        "target_lang": "SV",
        "empty": "",
    }


@pytest.mark.parametrize(
    ("query", "body", "key"),
    [
        (b"q=x&api_key=one%2Btwo", b"", "one+two"),
        (b"", b"q=x&api_key=one&target=sv", "one"),
        (b"", b'{"q": "x", "api_key" : "one"}', "one"),
        (b"", rb'{"q": "say \"api_key\": \"two\"", "api_key": "one"}', "one"),
        (b"", b'{"q": "api_key", "source": "x"}', ""),
        (b"", rb'{"q": "x", "api_key": "ab\/c\u002Bd"}', "ab/c+d"),  # as PHP and .NET write them
        (b"", rb'{"q": "x", "api_key": "ab\c"}', ""),
        (b"my_api_key=two", b'{"api_key": 5}', ""),
        (b"", b'{"q": "x", "api_key": "' + b"x" * 510 + b'"}', "x" * 510),
        (b"", b'{"q": "x", "api_key": "' + b"x" * 511 + b'"}', ""),
        (b"", b"api_key=" + b"x" * 513, ""),
        (b"", b"", ""),
    ],
)
def test_a_key_is_found_in_a_query_a_form_or_an_object(query: bytes, body: bytes, key: str) -> None:
    assert key_in(query, body) == key


@pytest.mark.parametrize("key", [b"a" * 513, b"\\a" * 300, b"a" * 600 + b"\\\n"])
def test_bodies_full_of_keys_that_are_none_take_no_time(key: bytes) -> None:
    body = (b'"api_key":"' + key) * (2_000_000 // (len(key) + 11))
    with frozen():
        started = time.thread_time()

        assert key_in(b"", body) == ""
        assert time.thread_time() - started < 0.05


async def test_libretranslates_clients_may_send_the_key_with_the_fields(
    open_client: OpenClient, tmp_path: Path
) -> None:
    (tmp_path / "keys.yaml").write_text(f"- name: page\n  hash: {hash_of('one')}\n")
    settings = {"api_keys_file": tmp_path / "keys.yaml"}
    fields = {"q": "Good.", "target": "sv"}
    async with open_client("translate", settings=settings) as client:
        let_in = [
            await client.post("/translate", json={**fields, "api_key": "one"}),
            await client.post("/translate", data={**fields, "api_key": "one"}),
            await client.post("/translate", params={**fields, "api_key": "one"}),
            await client.request("GET", "/languages", data={"api_key": "one"}),
            await client.get("/frontend/settings", params={"api_key": "one"}),
            await client.post("/detect", json={"q": "x", "api_key": "one"}),
            await client.get("/v2/usage", headers={"Authorization": "DeepL-Auth-Key one"}),
        ]
        refused = [
            await client.post("/detect", json={"q": "x", "api_key": "two"}),
            await client.post("/detect", content=rb'{"q": "x", "api_key": "\ud800"}'),
            await client.get("/v2/usage", headers={"Authorization": "DeepL-Auth-Key two"}),
            await client.post("/tokenize", json={"input": "x", "api_key": "one"}),
        ]

    assert [response.status_code for response in let_in] == [200] * len(let_in)
    assert [response.status_code for response in refused] == [403, 403, 403, 401]
    assert "API key" in refused[0].json()["error"] and "API key" in refused[2].json()["message"]
    assert let_in[4].json()["keyRequired"] is True
