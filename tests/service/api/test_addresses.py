from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.api.app import create_app
from service.settings import Settings
from tests.conftest import MakePackage, TinyPackage
from tests.service.api.conftest import Client, OpenClient, post, series


async def test_each_model_has_all_routes_at_its_own_address(client: Client) -> None:
    named = await post(client, "/classify", model="sentiment", input="good")

    assert await post(client, "/models/sentiment/classify", input="good") == named
    assert (await client.get("/models/stories/v1/models")).json()["data"][0]["id"] == "stories"
    assert len((await client.get("/models/stories/v1/models")).json()["data"]) == 1
    assert list((await client.get("/models/stories/ready")).json()["models"]) == ["stories"]
    assert "/models/stories/openapi.json" in (await client.get("/models/stories/docs")).text


async def test_no_other_model_answers_at_a_models_address(client: Client) -> None:
    other = await client.post("/models/sentiment/generate", json={"prompt": "Once", "model": "stories"})
    none = await client.post("/models/sentiment/generate", json={"prompt": "Once"})
    unknown = await client.post("/models/nobody/classify", json={"input": "good"})

    assert (other.status_code, other.json()["error"]["code"]) == (404, "not_found")
    assert (
        other.json()["error"]["message"]
        == "there is no model 'stories' at the address of 'sentiment', which has no other"
    )
    assert none.json()["error"]["message"] == "there is no model for generate here; there are sentiment (classify)"
    assert unknown.status_code == 404
    assert unknown.json()["error"]["message"] == "there is no model 'nobody' here; GET /v1/models lists those there are"


async def test_that_a_model_is_not_here_is_told_in_the_words_of_its_protocol(client: Client) -> None:
    of_openai = await client.post("/models/nobody/v1/chat/completions", json={})
    of_deepl = await client.post("/models/nobody/v2/translate", json={})

    assert (of_openai.status_code, of_deepl.status_code) == (404, 404)
    assert of_openai.json()["error"]["code"] == "model_not_found"
    assert of_deepl.json().keys() == {"message"}


@pytest.mark.parametrize("path", ["/classify", "/models/sentiment/classify"])
async def test_a_slash_at_a_paths_end_is_taken_off_without_a_redirect(client: Client, path: str) -> None:
    plain = await post(client, path, input="good", model="sentiment")

    assert await post(client, f"{path}/", input="good", model="sentiment") == plain
    assert (await client.get("/models/sentiment/docs/")).status_code == 200
    assert (await client.post(f"{path}x/", json={})).status_code == 404


async def test_requests_at_different_addresses_are_counted_by_model_and_apart_from_its_task(client: Client) -> None:
    for name in ("sentiment", "embed", "sentiment"):
        await client.post(f"/models/{name}/tokenize", json={"input": "good"})
    counts = series((await client.get("/metrics")).text)

    assert counts['requests_total{code="200",model="sentiment",task="tokenize"}'] == 2
    assert counts['requests_total{code="200",model="embed",task="tokenize"}'] == 1


async def test_a_full_model_refuses_at_its_address_and_others_do_not(
    open_client: OpenClient, make_package: MakePackage
) -> None:
    full: Any = Full(make_package("sentiment"))
    free: Any = Full(make_package("stories"))
    free.is_full = False
    transport = httpx.ASGITransport(create_app([full, free], Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        refused = await client.post("/models/sentiment/classify", content=b"is not read")
        read = [await client.post(path, content=b"is read") for path in ("/models/stories/generate", "/classify")]

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
    assert [answer.status_code for answer in read] == [400, 400]


class Full:
    """A task whose queue is full."""

    is_remote, is_full = False, True

    def __init__(self, package: TinyPackage) -> None:
        self.manifest = package.manifest

    def is_full_for(self, client: str) -> bool:
        return self.is_full


@pytest.mark.parametrize("mounted", ["", "/models/sentiment", "/replicas/shared"])
async def test_an_app_answers_wherever_serve_mounts_it(
    open_client: OpenClient, sentiment: TinyPackage, mounted: str
) -> None:
    async with open_client("sentiment") as client:
        app: Any = client._transport.app  # type: ignore[attr-defined]  # of ASGITransport
        transport = httpx.ASGITransport(app, root_path=mounted)
        below = "" if mounted.startswith("/models") else "/models/sentiment"
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as mounted_client:
            answers = [
                await mounted_client.post(f"{mounted}{below}/classify", json={"input": "good"}),
                await mounted_client.post(f"{mounted}{below}", json={"inputs": "good"}),
                await mounted_client.post(f"{mounted}/classify/", json={"input": "good"}),
            ]
            documents = await mounted_client.get(f"{mounted}{below}/docs")

    assert [answer.status_code for answer in answers] == [200] * 3
    assert "/models/sentiment/openapi.json" in documents.text


async def test_a_model_has_further_names_for_requests(open_client: OpenClient) -> None:
    async with open_client("stories", aliases=("org/Stories-1M", "gpt-3.5-turbo")) as client:
        body = {"prompt": "Once", "max_tokens": 4, "temperature": 0}
        answer = await post(client, "/generate", **body)
        for name in ("org/Stories-1M", "gpt-3.5-turbo"):
            for path in ("/generate", "/models/stories/generate", "/v1/completions"):
                assert (await post(client, path, model=name, **body))["choices"][0]["text"] == answer["choices"][0][
                    "text"
                ]
            card = (await client.get(f"/v1/models/{name}")).json()
            assert card["id"] == "stories" and card["aliases"] == ["org/Stories-1M", "gpt-3.5-turbo"]
        unknown = await client.get("/v1/models/org/Other")

    assert unknown.status_code == 404 and "there is no model 'org/Other'" in unknown.text
