"""How busy a node is, for whoever looks every second."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import service.metrics_engine
from service.metrics_engine import FLUSH_S
from tests.service.api.conftest import Client, OpenClient, post, series
from tests.service.api.test_keys import entry, keys

LONG = {"prompt": "Once", "n": 32, "max_tokens": 110, "min_tokens": 110}


async def look(client: Client) -> Any:
    response = await client.get("/live")
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_request_takes_slots_while_it_runs_and_gives_them_back(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.metrics_engine, "FLUSH_S", 0.01)
    async with open_client("stories") as client:
        idle = await look(client)
        request = asyncio.create_task(post(client, "/generate", **LONG))
        busy = idle
        while not busy["models"]["stories"]["running"]:
            assert not request.done(), "it was never seen"
            await asyncio.sleep(0.01)
            busy = await look(client)
        usage = (await request)["usage"]
        await asyncio.sleep(0.1)
        after = await look(client)

    assert idle["models"]["stories"] == {"running": 0, "waiting": 0, "slots_used": 0, "slots": 64, "tokens": 0}
    assert (idle["requests"], busy["requests"], after["requests"]) == (0, 1, 0)
    assert busy["models"]["stories"]["slots_used"] == busy["models"]["stories"]["running"] == 32
    tokens = 32 * usage["prompt_tokens"] + usage["completion_tokens"]  # each choice reads the prompt
    assert after["models"]["stories"] == {**idle["models"]["stories"], "tokens": tokens}
    assert idle["at"] < busy["at"] < after["at"] <= time.time()


async def test_it_tells_what_the_metrics_tell_in_a_fraction_of_their_length(client: Client) -> None:
    await post(client, "/classify", input=["good", "not good"])
    await post(client, "/translate", input="Dan loves ice cream.", target="sv", max_tokens=4)
    await asyncio.sleep(FLUSH_S * 2)
    live, page = await client.get("/live"), await client.get("/metrics")

    told, counted = live.json()["models"], series(page.text)
    for name in ("sentiment", "embed", "stories", "translate"):
        tokens = [counted[f'{kind}_tokens_total{{model="{name}"}}'] for kind in ("prompt", "generated")]
        assert told[name]["tokens"] == sum(tokens)
        assert told[name]["slots"] == counted[f'kv_slots{{model="{name}"}}']
    assert told["translate"]["tokens"] > 0 and told["sentiment"]["tokens"] > 0
    assert len(live.content) < 1000 < len(page.content) / 20


async def test_it_is_open_to_those_to_whom_the_metrics_are(open_client: OpenClient, tmp_path: Path) -> None:
    async with open_client("stories", settings=keys(tmp_path, entry("a", "one"))) as client:
        refused = [(await client.get(path)).status_code for path in ("/live", "/metrics")]
        let_in = await client.get("/live", headers={"X-API-Key": "one"})

    assert refused == [401, 401]
    assert list(let_in.json()["models"]) == ["stories"]


async def test_looking_at_the_service_takes_nothing_of_what_a_key_may_ask_for(
    open_client: OpenClient, tmp_path: Path
) -> None:
    settings = keys(tmp_path, entry("a", "one", requests_per_minute=1))
    async with open_client("stories", settings=settings) as client:
        client.headers["X-API-Key"] = "one"
        looks = [(await client.get(path)).status_code for path in ("/live", "/metrics") * 3]
        asked = [(await client.get("/v1/models")).status_code for _ in range(2)]

    assert looks == [200] * 6 and asked == [200, 429]
