"""Autoscaling live: load a running service, and draw what Prometheus saw of it.

`python -m loadtests.live_scaling --out scaling.png` asks one model for stories: from few clients, then from many, then
from few again. It needs `prometheus` on the PATH, and a service with `TRIFOLD_RAY_METRICS_PORT=8080` and a model that
may have several replicas.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import time
from collections import Counter
from pathlib import Path

import httpx2
from matplotlib.figure import Figure

from deploy.monitoring.local import Prometheus, prometheus

BODY = {"prompt": "Once upon a time", "max_tokens": 120, "temperature": 1.0}
PAUSE_S = 0.5  # after an error: a client that asks again at once would be a flood of errors
FIRST_TOKEN = 'trifold_time_to_first_token_seconds_bucket{{model="{model}"}}'
PANELS = {
    "replicas": (
        'max(ray_serve_autoscaling_desired_replicas{{application="{application}"}})',
        'sum(ray_serve_deployment_replica_healthy{{application="{application}"}})',
    ),
    "sequences": (
        'sum(trifold_sequences_running{{model="{model}"}})',
        'sum(trifold_sequences_waiting{{model="{model}"}})',
    ),
    "tokens a second": ('sum(rate(trifold_generated_tokens_total{{model="{model}"}}[10s]))',),
    "first token, p95 in s": (f"histogram_quantile(0.95, sum by (le) (rate({FIRST_TOKEN}[10s])))",),
}
NAMES = {"replicas": ("desired", "healthy"), "sequences": ("running", "waiting")}


async def check(client: httpx2.AsyncClient, url: str) -> None:
    """Ask for a token; ends this program with a line unless it comes."""
    try:
        response = await client.post(url, json={**BODY, "max_tokens": 1})
    except httpx2.HTTPError as error:
        sys.exit(f"{url} does not answer ({error or type(error).__name__}); start the service")
    if response.status_code != 200:
        sys.exit(f"{url}: {response.status_code}: {response.text[:500]}")


async def ask(client: httpx2.AsyncClient, url: str, until: float, codes: Counter[int | str]) -> None:
    """Ask for one story after another, without a pause but after what is no story."""
    while time.time() < until:
        try:
            code: int | str = (await client.post(url, json=BODY)).status_code
        except httpx2.HTTPError as error:
            code = type(error).__name__
        codes[code] += 1
        if code != 200:
            await asyncio.sleep(PAUSE_S)


async def load(address: str, key: str, model: str, phases: list[tuple[int, float]]) -> Counter[int | str]:
    """Run (clients, seconds) phases one after the other; answers by status, or by the error instead of one."""
    codes: Counter[int | str] = Counter()
    url = f"{address}/models/{model}/generate"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(timeout=120, headers=headers, limits=httpx2.Limits(max_connections=1000)) as client:
        await check(client, url)
        for clients, seconds in phases:
            until = time.time() + seconds
            await asyncio.gather(*(ask(client, url, until, codes) for _ in range(clients)))
    return codes


def draw(source: Prometheus, model: str, application: str, start: float, end: float, path: Path) -> None:
    """Draw the series, one panel above the other."""
    names = {"model": model, "application": application}
    figure = Figure(figsize=(8, 9), layout="constrained")
    for axes, (title, queries) in zip(figure.subplots(len(PANELS), sharex=True), PANELS.items(), strict=True):
        for query, name in zip(queries, NAMES.get(title, ("",)), strict=True):
            for points in source.series(query.format(**names), start, end).values():
                axes.step([at - start for at, _ in points], [value for _, value in points], where="post", label=name)
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if title in NAMES:
            axes.legend(loc="upper right")
    figure.axes[-1].set_xlabel("seconds")
    figure.savefig(path, dpi=100)


def main() -> None:
    """Load, and draw."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.live_scaling", description=__doc__)
    parser.add_argument("--address", default="http://127.0.0.1:8000")
    parser.add_argument("--api-key", default=os.environ.get("LOAD_API_KEY", ""), help="of the service")
    parser.add_argument("--metrics", default="127.0.0.1:9464", help="the node's metrics port")
    parser.add_argument("--ray-metrics", default="127.0.0.1:8080", help="Ray's metrics port")
    parser.add_argument("--model", default="stories")
    parser.add_argument(
        "--application",
        help="of the model, in Ray's metrics; by default its name, but a model alone is the gateway, too",
    )
    parser.add_argument("--clients", type=int, default=48, help="in the middle phase")
    parser.add_argument("--seconds", type=float, default=90, help="of a phase")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    phases = [(2, options.seconds / 3), (options.clients, options.seconds), (2, 2 * options.seconds)]
    with prometheus({"trifold": options.metrics, "trifold-ray": options.ray_metrics}) as source:
        start = time.time()
        codes = asyncio.run(load(options.address, options.api_key, options.model, phases))
        application = options.application or options.model
        draw(source, options.model, application, start, time.time(), options.out)
        replicas = source.series(PANELS["replicas"][1].format(application=application), start, time.time())
    seen = [int(value) for points in replicas.values() for _, value in points]
    if not seen:
        raise SystemExit(
            f"{options.ray_metrics} tells of no replicas of an application {application!r}; start the service with "
            "TRIFOLD_RAY_METRICS_PORT, and of a model alone name the --application gateway"
        )
    changes = [seen[0], *(after for before, after in itertools.pairwise(seen) if after != before)]
    sys.stdout.write(f"replicas: {' → '.join(map(str, changes))}; answers by status: {dict(codes)}\n")


if __name__ == "__main__":
    main()
