"""What the way through HAProxy, Ray and the API costs: wrk on the service, and on the same API without Ray.

The service must run, with the bundled models. Started here are one process of uvicorn with the API over `sentiment`
and `stories`, which writes no logs, and a trivial FastAPI app that answers with a constant. All are measured in turns,
again and again, as only their ratios mean anything on a shared machine; each ratio is the median of the rounds' own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.monitoring.local import free_port

ROOT = Path(__file__).parent.parent
CONNECTIONS = (1, 16, 64)
TEXT = {"input": "A warm, funny and moving film."}
STREAM = {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0, "stream": True}
SCRIPT = """wrk.method = "POST"
wrk.body = [[{body}]]
wrk.headers["Content-Type"] = "application/json"
"""
APPS = {
    "trivial": """
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()

class Input(BaseModel):
    input: str

@app.post("/classify")
async def classify(request: Input):
    return {"model": "none", "results": [{"labels": [{"label": "positive", "score": 0.5}]}]}
""",
    "plain": """
from model.package import Manifest
from service.api.app import create_app
from service.settings import Settings
from service.tasks.loading import load_task

settings = Settings()
models = [model for model in settings.models() if Manifest.load(model.package).name in {"sentiment", "stories"}]
app = create_app([load_task(model, settings.limits) for model in models], settings)
""",
}


@dataclass(frozen=True)
class Target:
    """An address, and what it is asked."""

    name: str
    address: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """Requests per second, the 99th percentile of latency in milliseconds, and how many were not answered well."""

    rate: float
    p99: float
    failed: int


def main() -> None:
    """Measure all in turns and print a table of each workload."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_http", description=__doc__)
    parser.add_argument("--host", default="http://127.0.0.1:8000", help="where the service runs")
    parser.add_argument("--seconds", type=int, default=3, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed; on Debian: apt-get install wrk")
    with (
        tempfile.TemporaryDirectory() as name,
        serving("trivial", Path(name)) as trivial,
        serving("plain", Path(name)) as plain,
    ):
        workloads = {
            "classify": [
                Target("plain uvicorn", f"{plain}/classify", {"model": "sentiment", **TEXT}),
                Target("/models/sentiment/classify", f"{options.host}/models/sentiment/classify", TEXT),
                Target("/classify, model", f"{options.host}/classify", {"model": "sentiment", **TEXT}),
                Target("/classify", f"{options.host}/classify", TEXT),
                Target("trivial app", f"{trivial}/classify", TEXT),
            ],
            "generate, 16 tokens as a stream": [
                Target("plain uvicorn", f"{plain}/generate", STREAM),
                Target("/models/stories/generate", f"{options.host}/models/stories/generate", STREAM),
                Target("/generate, model", f"{options.host}/generate", {"model": "stories", **STREAM}),
                Target("/generate", f"{options.host}/generate", STREAM),
            ],
        }
        print(processor())
        for title, targets in workloads.items():
            compare(title, targets, Path(name), options.seconds, options.rounds)


@contextmanager
def serving(app: str, folder: Path) -> Iterator[str]:
    """Run an app on uvicorn until left; its address."""
    (folder / f"{app}.py").write_text(APPS[app])
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", f"{app}:app", "--port", str(port), "--log-level", "error"]
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def compare(title: str, targets: Sequence[Target], folder: Path, seconds: int, rounds: int) -> None:
    """Print a table: a line for every number of connections, with ratios to the first two targets."""
    for target in targets:
        wait_for(target)
    print(f"\n{title}: requests/s (p99 in ms; ratio to the first, ratio to the second)\n")
    print(f"| connections | {' | '.join(target.name for target in targets)} | steal |\n|{'---|' * (len(targets) + 2)}")
    for connections in CONNECTIONS:
        before = processor_time()
        turns = [[measure(target, folder, connections, seconds) for target in targets] for _ in range(rounds)]
        stolen, spent = (now - then for now, then in zip(processor_time(), before, strict=True))
        cells = [cell([turn[place] for turn in turns], turns) for place in range(len(targets))]
        print(f"| {connections} | {' | '.join(cells)} | {stolen / spent:.1%} |", flush=True)


def cell(of_target: Sequence[Measured], turns: Sequence[Sequence[Measured]]) -> str:
    """Return medians over the rounds; a ratio is taken within each round."""
    rate, p99 = (statistics.median(values) for values in zip(*((m.rate, m.p99) for m in of_target), strict=True))
    ratios = [
        statistics.median(m.rate / turn[base].rate for m, turn in zip(of_target, turns, strict=True)) for base in (0, 1)
    ]
    failed = sum(m.failed for m in of_target)
    said = f"; {failed} failed" if failed else ""
    return f"{rate:.0f} ({p99:.0f}; {ratios[0]:.2f}, {ratios[1]:.2f}{said})"


def measure(target: Target, folder: Path, connections: int, seconds: int) -> Measured:
    """Run wrk once."""
    (folder / "post.lua").write_text(SCRIPT.format(body=json.dumps(target.body)))
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", "post.lua", target.address]
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))  # type: ignore[union-attr]  # wrk prints it
    amount, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", output).groups()  # type: ignore[union-attr]  # and this
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    return Measured(
        rate, float(amount) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit], int(failed.group(1)) if failed else 0
    )


def processor() -> str:
    """Return the processor's name and how many of its cores there are."""
    names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return f"{names[0] if names else 'a processor without a name'}, {os.cpu_count()} cores"


def processor_time() -> tuple[int, int]:
    """Return the time that other guests of the machine have stolen, and all time, in ticks."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


def wait_for(target: Target) -> None:
    """Ask once a moment until there is an answer."""
    body = json.dumps(target.body).encode()
    request = urllib.request.Request(target.address, body, {"Content-Type": "application/json"})
    for _ in range(150):
        try:
            urllib.request.urlopen(request, timeout=5).read()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{target.address} does not answer; start the service with 'make serve'")


if __name__ == "__main__":
    main()
