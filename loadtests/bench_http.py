"""What the way through HAProxy, Ray and the API costs: wrk on the service, and on the same API without Ray.

The service must run, with the bundled models. Started here are one process of uvicorn with the API over `sentiment`,
`embed` and `stories`, which writes no logs, and an app of a page such as one writes oneself: FastAPI, the tokenizer and
the same graphs, a request at a time in each thread. All are measured in turns, again and again, as only their ratios
mean anything on a shared machine; each ratio is the median of the rounds' own.
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
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploy.monitoring.local import free_port
from loadtests.machine import ROOT, processor

CONNECTIONS = (1, 16, 64, 256)
WORKLOADS = ("classify", "embed", "generate")
TEXT = {"input": "A warm, funny and moving film."}
STREAM = {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0, "stream": True}
SCRIPT = """wrk.method = "POST"
wrk.body = [[{body}]]
wrk.headers["Content-Type"] = "application/json"
{key}"""
WITH_KEY = 'wrk.headers["Authorization"] = "Bearer {key}"\n'
APPS = {
    "own": """
from pathlib import Path

import numpy as np
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel

import model.package
from model.package import Manifest, PackageTokenizer
from model.package.inputs import encoder_inputs, pad_rows

app = FastAPI()
PACKAGES = Path(model.package.__file__).parent.parent / "packages"

class Input(BaseModel):
    input: str

class Encoder:
    def __init__(self, name):
        self.manifest = Manifest.load(PACKAGES / name)
        self.tokenizer = PackageTokenizer.load(PACKAGES / name / "tokenizer.json")
        self.session = onnxruntime.InferenceSession(PACKAGES / name / "encoder.onnx")
        self.names = {wanted.name for wanted in self.session.get_inputs()}

    def run(self, text):
        encoding = self.tokenizer.encode(text)
        ids, lengths = pad_rows([encoding.ids], 0)
        inputs = encoder_inputs(ids, lengths, np.zeros_like(ids))
        (row,) = self.session.run(None, {name: array for name, array in inputs.items() if name in self.names})[0]
        return row, len(encoding.ids)

sentiment, embed = Encoder("sentiment"), Encoder("embed")

@app.post("/classify")
def classify(request: Input):
    logits, tokens = sentiment.run(request.input)
    scores = np.exp(logits - logits.max())
    scores /= scores.sum()
    best = np.argsort(-scores)
    labels = [{"label": sentiment.manifest.labels[i], "score": float(scores[i])} for i in best]
    return {"model": "sentiment", "results": [{"labels": labels}], "usage": {"prompt_tokens": tokens}}

@app.post("/v1/embeddings")
def embeddings(request: Input):
    vector, tokens = embed.run(request.input)
    vector = (vector / np.linalg.norm(vector)).tolist()
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    return {"object": "list", "data": data, "model": "embed", "usage": {"prompt_tokens": tokens}}
""",
    "plain": """
from model.package import Manifest
from service.api.app import create_app
from service.settings import Settings
from service.tasks.loading import load_task

settings = Settings()
NAMES = {"sentiment", "embed", "stories"}
models = [model for model in settings.models() if Manifest.load(model.package).name in NAMES]
app = create_app([load_task(model, settings.limits) for model in models], settings)
""",
}


@dataclass(frozen=True)
class Target:
    """An address, and what it is asked."""

    name: str
    address: str
    body: dict[str, Any]
    key: str = ""  # an API key, where the service asks for one


@dataclass(frozen=True)
class Measured:
    """Requests per second, percentiles of latency in milliseconds, and how many were not answered well."""

    rate: float
    p50: float
    p99: float
    failed: int


def main() -> None:
    """Measure all in turns and print a table of each workload."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_http", description=__doc__)
    parser.add_argument("--host", default="http://127.0.0.1:8000", help="where the service runs")
    parser.add_argument("--api-key", default=os.environ.get("LOAD_API_KEY", ""), help="of the service")
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS, help="at a time, in turns")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS, help="workloads; all, unless named")
    parser.add_argument("--seconds", type=int, default=3, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed; on Debian: apt-get install wrk")
    with (
        tempfile.TemporaryDirectory() as name,
        serving("own", Path(name)) as own,
        serving("plain", Path(name)) as plain,
    ):
        workloads = {
            "classify": [
                Target("an app of one's own", f"{own}/classify", TEXT),
                Target("plain uvicorn", f"{plain}/classify", {"model": "sentiment", **TEXT}),
                Target("/models/sentiment/classify", f"{options.host}/models/sentiment/classify", TEXT),
                Target("/classify, model", f"{options.host}/classify", {"model": "sentiment", **TEXT}),
                Target("/classify", f"{options.host}/classify", TEXT),
            ],
            "embed": [
                Target("an app of one's own", f"{own}/v1/embeddings", TEXT),
                Target("plain uvicorn", f"{plain}/v1/embeddings", {"model": "embed", **TEXT}),
                Target("/models/embed/v1/embeddings", f"{options.host}/models/embed/v1/embeddings", TEXT),
                Target("/v1/embeddings, model", f"{options.host}/v1/embeddings", {"model": "embed", **TEXT}),
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
            if title.split(",")[0] in options.only:
                keyed = [replace(target, key=options.api_key) for target in targets]
                compare(title, keyed, Path(name), options.seconds, options.rounds, options.connections)


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


def compare(
    title: str, targets: Sequence[Target], folder: Path, seconds: int, rounds: int, at_a_time: Sequence[int]
) -> None:
    """Print a table: a line for every number of connections, with ratios to the targets before, at most three."""
    for target in targets:
        wait_for(target)
    print(f"\n{title}: requests/s (p50, p99 in ms; ratio to each before it, at most three)\n")
    print(f"| connections | {' | '.join(target.name for target in targets)} | steal |\n|{'---|' * (len(targets) + 2)}")
    for connections in at_a_time:
        before = processor_time()
        turns = [[measure(target, folder, connections, seconds) for target in targets] for _ in range(rounds)]
        stolen, spent = (now - then for now, then in zip(processor_time(), before, strict=True))
        cells = [cell(place, turns) for place in range(len(targets))]
        print(f"| {connections} | {' | '.join(cells)} | {stolen / spent:.1%} |", flush=True)


def cell(place: int, turns: Sequence[Sequence[Measured]]) -> str:
    """Return the medians of one target over the rounds; a ratio is taken within each round, to those that answered."""
    own = [turn[place] for turn in turns]
    rate, p50, p99 = (statistics.median(values) for values in zip(*((m.rate, m.p50, m.p99) for m in own), strict=True))
    ratios = [ratio(place, base, turns) for base in range(min(place, 3))]
    failed = sum(m.failed for m in own)
    said = f"; {failed} failed" if failed else ""
    return f"{rate:.0f} ({p50:.0f}, {p99:.0f}{'; ' if ratios else ''}{', '.join(ratios)}{said})"


def ratio(place: int, base: int, turns: Sequence[Sequence[Measured]]) -> str:
    """Return the median ratio of two targets' rates; a dash where the other never had an answer."""
    ratios = [turn[place].rate / turn[base].rate for turn in turns if turn[base].rate]
    return f"{statistics.median(ratios):.2f}" if ratios else "–"


def measure(target: Target, folder: Path, connections: int, seconds: int) -> Measured:
    """Run wrk once."""
    key = WITH_KEY.format(key=target.key) if target.key else ""
    (folder / "post.lua").write_text(SCRIPT.format(body=json.dumps(target.body), key=key))
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", "post.lua", target.address]
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))  # type: ignore[union-attr]  # wrk prints it
    return Measured(rate, percentile(50, output), percentile(99, output), failures(output))


def failures(output: str) -> int:
    """Count the requests that wrk had no good answer to: of another status, or none at all."""
    statuses = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    return sum(int(count) for found in (statuses, broken) if found for count in found.groups())


def percentile(percent: int, output: str) -> float:
    """Return a percentile of latency that wrk printed, in milliseconds."""
    amount, unit = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s)", output).groups()  # type: ignore[union-attr]  # it does
    return float(amount) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def processor_time() -> tuple[int, int]:
    """Return the time that other guests of the machine have stolen, and all time, in ticks."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


def wait_for(target: Target) -> None:
    """Ask once a moment until there is an answer; one that is an error, or never comes, ends this program."""
    body = json.dumps(target.body).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {target.key}"} if target.key else {})
    request = urllib.request.Request(target.address, body, headers)
    found = f"{target.address} does not answer; start the service with 'make serve'"
    for _ in range(150):
        try:
            urllib.request.urlopen(request, timeout=5).read()
            return
        except urllib.error.HTTPError as error:
            with error:
                found = f"{target.address}: {error.code}: {error.read().decode(errors='replace')[:500]}"
            if error.code != 503:  # which a service that starts says, too
                break
            time.sleep(0.1)
        except OSError:
            time.sleep(0.1)
    sys.exit(found)


if __name__ == "__main__":
    main()
