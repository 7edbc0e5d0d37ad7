"""What Prometheus sees of requests and of the engine's work behind them."""

from __future__ import annotations

import asyncio
import time

import httpx

from service.metrics import FLUSH_S
from tests.service.api.conftest import OpenClient, events_of, post, series


async def scrape(client: httpx.AsyncClient) -> dict[str, float]:
    await asyncio.sleep(FLUSH_S * 1.5)
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return series(response.text)


async def test_requests_steps_and_tokens_are_counted(open_client: OpenClient) -> None:
    async with open_client("stories", "sentiment") as client:
        await post(client, "/generate", prompt=["Once upon a time"] * 2, max_tokens=9, temperature=0, stop_ids=[])
        await events_of(client, "/generate", prompt="The dog", max_tokens=5, temperature=0)
        await post(client, "/classify", input=["good", "The film was not so good."])
        seen = await scrape(client)

    assert seen['requests_total{code="200",model="stories",task="generate"}'] == 2
    assert seen['request_seconds_count{model="sentiment",task="classify"}'] == 1
    tokens = seen['generated_tokens_total{model="stories"}']
    assert seen['inter_token_seconds_count{model="stories"}'] == tokens - 3
    assert seen['time_to_first_token_seconds_count{model="stories"}'] == 3
    assert seen['queue_seconds_count{model="stories"}'] == 3 and seen['queue_seconds_count{model="sentiment"}'] == 2
    assert seen['batch_tokens_sum{model="stories",phase="decode"}'] == tokens
    assert seen['step_seconds_count{model="stories",phase="prefill"}'] >= 1
    assert seen['batch_rows_sum{model="sentiment",phase="encode"}'] == 2
    assert 0 < seen['padding_ratio_sum{model="sentiment",phase="encode"}'] < 1
    assert seen['prefix_cache_queries_total{model="stories"}'] > seen['prefix_cache_hits_total{model="stories"}']
    assert seen['kv_slots{model="stories"}'] == 64 and seen['kv_slots_used{model="stories"}'] == 0
    assert seen['sequences_running{model="stories"}'] == seen['sequences_waiting{model="stories"}'] == 0
    assert seen['model_info{family="trifold",model="stories",precision="float32",task="generate"}'] == 1
    assert seen['model_load_seconds{model="stories"}'] > 0
    assert seen['process_resident_memory_bytes{model="stories"}'] > 1e7
    assert abs(seen['engine_last_step_timestamp_seconds{model="stories"}'] - time.time()) < 60


async def test_refusals_are_counted_by_their_reason(open_client: OpenClient) -> None:
    async with open_client("stories", settings={"api_keys": ["key"]}) as client:
        await client.post("/generate", json={"prompt": "x"})
        headers = {"X-API-Key": "key"}
        await client.post("/generate", json={"prompt": "dog " * 900}, headers=headers)
        await client.post("/generate", json={"model": "poems", "prompt": "x"}, headers=headers)
        await asyncio.sleep(FLUSH_S)
        seen = series((await client.get("/metrics", headers=headers)).text)

    assert seen['rejections_total{model="unknown",reason="unauthorized"}'] == 1
    assert seen['rejections_total{model="stories",reason="invalid_request"}'] == 1
    assert seen['rejections_total{model="unknown",reason="not_found"}'] == 1
    assert seen['requests_total{code="422",model="stories",task="generate"}'] == 1


async def test_a_client_that_leaves_is_counted(open_client: OpenClient) -> None:
    async with open_client("stories") as client:
        request = asyncio.create_task(client.post("/generate", json={"prompt": "Once", "n": 64, "max_tokens": 120}))
        await asyncio.sleep(0.05)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        seen = await scrape(client)

    assert seen['cancellations_total{model="stories"}'] == 1
    assert seen['requests_total{code="499",model="stories",task="generate"}'] == 1


async def test_probes_and_scrapes_are_not_requests(open_client: OpenClient) -> None:
    async with open_client("stories") as client:
        for path in ("/health", "/ready", "/metrics", "/docs"):
            await client.get(path)
        seen = await scrape(client)

    assert not [name for name in seen if name.startswith("requests_total")]
