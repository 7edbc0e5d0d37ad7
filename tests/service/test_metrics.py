"""What Prometheus sees of several processes on a node, and what the metrics are."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from deploy.monitoring.local import free_port
from service.metrics import Metrics
from tests.service.api.conftest import series

ROOT = Path(__file__).parent.parent.parent
LABELS = {"model", "task", "code", "phase", "reason", "precision", "family", "le"}


def test_labels_are_few_and_bounded() -> None:
    names = {label for metric in vars(Metrics()).values() for label in getattr(metric, "_labelnames", ())}

    assert names and names <= LABELS


WORKER = """
    import asyncio, sys, time
    from pathlib import Path
    from service.engine.observer import Load, Step
    from service.metrics import Metrics

    async def work():
        metrics = Metrics(Path(sys.argv[1]))
        observer = metrics.observer("stories")
        observer.watch(lambda: Load(running=2, waiting=1, queued_tokens=7, slots_used=3))
        metrics.export("127.0.0.1", int(sys.argv[2]))
        for _ in range(5):
            observer.began(0.01)
            observer.stepped(Step("decode", 0.002, 2, 2, 2))
        await asyncio.sleep(0.5)
        print("ready", flush=True)
        await asyncio.sleep(60)

    asyncio.run(work())
"""


@contextmanager
def worker(directory: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(directory), str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def page(port: int) -> dict[str, float]:
    deadline = time.monotonic() + 15
    while True:
        try:
            return series(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text)
        except httpx.HTTPError:
            assert time.monotonic() < deadline, "nobody took the port over"
            time.sleep(0.1)


def test_a_nodes_processes_are_added_up_and_outlive_the_one_that_answers(tmp_path: Path) -> None:
    port = free_port()
    with worker(tmp_path, port) as first, worker(tmp_path, port):
        both = page(port)
        first.kill()
        first.wait()
        left = page(port)

    assert both['generated_tokens_total{model="stories"}'] == left['generated_tokens_total{model="stories"}'] == 10
    assert both['sequences_running{model="stories"}'] == 4
    assert left['sequences_running{model="stories"}'] == 2  # of the living alone
    assert left['step_seconds_count{model="stories",phase="decode"}'] == 10


def test_the_readme_explains_every_metric() -> None:
    rows = re.findall(r"^\| `trifold_(\w+)` \| (\w+) \|", (ROOT / "service/README.md").read_text(), re.MULTILINE)
    declared = {}
    for family in Metrics()._registry.collect():
        name = family.name.removeprefix("trifold_")
        declared[f"{name}_total" if family.type == "counter" else name] = family.type

    assert dict(rows) == declared
