"""The whole load test, by its command line, against a server that counts what it is asked, and may not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.monitoring.local import free_port
from loadtests.sweep import LOCUSTFILE
from tests.loadtests.server import Server, serving


def test_it_needs_nothing_that_locusts_image_has_not() -> None:
    without = (
        "import sys; sys.modules.update(dict.fromkeys(('model', 'pydantic', 'numpy', 'fastapi', 'ray', 'tokenizers')))"
    )
    told = "import loadtests.locustfile; from loadtests.machine import about; print(about()['instructions'])"
    command = [sys.executable, "-c", f"{without}; {told}"]
    done = subprocess.run(command, cwd=LOCUSTFILE.parent.parent, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


def locust(server: Server, *options: str) -> list[str]:
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    return [*command, "--host", server.address, "--api-key", server.key, *options]


def test_a_service_that_only_fails_fails_the_load_test(tmp_path: Path) -> None:
    with serving(500) as server:
        options = ("--users", "2", "--pause", "0.05", "--run-time", "1", "--report", str(tmp_path / "report.json"))
        ended = subprocess.run(locust(server, *options), capture_output=True, text=True, timeout=60, check=False)

    report = json.loads((tmp_path / "report.json").read_text())
    assert ended.returncode == 1, ended.stderr
    assert "nothing was answered" in ended.stdout and "classify: errors 100.00%" in ended.stdout
    assert report["total"]["errors"] == {"500": len(server.bodies)} and len(report["broken"]) == 2
    assert report["about"]["commit"] and report["about"]["processor"]


@pytest.mark.parametrize("arrivals", ["open", "closed"])
def test_a_service_that_hangs_fails_the_load_test_whatever_it_answered_before(arrivals: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with serving(200) as server:
        options = ("--arrivals", arrivals, "--users", "2", "--pause", "0.05", "--run-time", "2", "--patience", "0.5")
        command = locust(server, *options, "--report", str(report))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load:
            while not server.bodies and load.poll() is None:
                time.sleep(0.05)
            server.status = None
            output, errors = load.communicate(timeout=60)

    total = json.loads(report.read_text())["total"]
    assert load.returncode == 1, output + errors
    assert total["unfinished"] == total["sent"] - total["answered"] > 0 and not total["errors"]
    assert f"'unfinished': {total['unfinished']}" in output


@contextmanager
def workers(server: Server, port: str) -> Iterator[None]:
    started = [subprocess.Popen(locust(server, "--worker", "--master-port", port), env=os.environ) for _ in range(2)]
    try:
        yield
    finally:
        for worker in started:
            worker.kill()
            worker.wait()


def by_master(server: Server, *options: str) -> subprocess.CompletedProcess[str]:
    """Load from two workers until the master ends."""
    port = str(free_port())
    with workers(server, port):
        master = ("--master", "--master-bind-port", port, "--expect-workers", "2", *options)
        return subprocess.run(locust(server, *master), capture_output=True, text=True, timeout=60, check=False)


def test_a_master_adds_up_what_its_workers_count_and_a_rate_is_that_of_all_of_them(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with serving(200) as server:
        rate = ("--rate", "60", "--users", "4", "--spawn-rate", "100", "--run-time", "2", "--report", str(report))
        ended = by_master(server, *rate)

    found = json.loads(report.read_text())
    total = found["total"]
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert total["sent"] == total["answered"] == len(server.bodies)
    assert total["sent"] == pytest.approx(60 * found["seconds"], rel=0.4)  # they come at random
    asked = Counter(json.dumps(body) for body in server.bodies)
    assert list(asked.values()).count(1) > 0.1 * len(server.bodies), "workers ask the same, so all is asked twice"
    assert total["tokens_per_s"] == pytest.approx(7 * total["answered_per_s"])
    assert server.strangers == 0


def test_a_master_waits_for_answers_that_come_after_the_end_and_not_for_ever(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ("--rate", "20", "--users", "4", "--run-time", "1", "--report", str(report))
    with serving(200, delay_s=1.2) as server:
        ended = by_master(server, *options, "--patience", "20")
        total = json.loads(report.read_text())["total"]
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert total["sent"] == total["answered"] == len(server.bodies) > 0

    with serving(None) as server:
        ended = by_master(server, *options, "--patience", "0.5")
        total = json.loads(report.read_text())["total"]
        assert ended.returncode == 1, ended.stdout + ended.stderr
        assert total["sent"] == total["unfinished"] == len(server.bodies) > 0


def test_users_of_an_open_loop_who_begin_together_do_not_ask_together() -> None:
    with serving(200) as server:
        options = ("--rate", "5", "--users", "60", "--run-time", "3")
        ended = subprocess.run(locust(server, *options), capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert 0 < len(server.bodies) < 40  # 15, at random; one of each user more would be 75


@pytest.mark.parametrize(
    ("listing", "said"),
    [(401, "401; give --api-key or LOAD_API_KEY"), (404, "404"), (None, "does not answer")],
)
def test_a_service_that_does_not_tell_its_models_ends_the_load_test_with_a_line(listing: int | None, said: str) -> None:
    with serving(200, listing=listing or 200) as server:
        if listing is None:
            server.shutdown()
            server.server_close()
        command = locust(server, "--users", "1", "--run-time", "1")
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    *_, last = ended.stderr.splitlines()
    assert ended.returncode == 1 and last.startswith(f"{server.address}/v1/models") and said in last
    assert "Traceback" not in ended.stderr


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    bodies = [{"input": f"Text {place}."} for place in range(20)]
    lines = [json.dumps({"at": place / 10, "task": "classify", "body": body}) for place, body in enumerate(bodies)]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    with serving(200) as server:
        options = ("--trace", str(tmp_path / "trace.jsonl"), "--trace-speed", "1")
        ended = subprocess.run(locust(server, *options), capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    came = [int(body["input"].split()[1][:-1]) for body in server.bodies]
    assert sorted(came) == list(range(20)) and came[0] < 5 and came[-1] >= 15  # one may pass another on the way


LATE = """
import time
from contextlib import contextmanager
from types import SimpleNamespace
from loadtests.load_users import ClassifyUser, run

class Client:
    @contextmanager
    def post(self, *_, **__):
        yield SimpleNamespace(status_code=200, json=lambda: {"usage": {"prompt_tokens": 7, "completion_tokens": 0}})

user = ClassifyUser.__new__(ClassifyUser)
user.client, user.headers, run.models["classify"] = Client(), {}, "sentiment"
user.request("classify", {}, streams=False, due_s=time.perf_counter() - 30)
print(*run.outcomes.by_task["classify"].seconds)
"""


def test_the_time_of_a_request_that_was_sent_late_runs_from_when_it_was_due() -> None:
    ended = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=True)

    assert 30 <= float(ended.stdout) < 60


STREAMED = """
from loadtests.load_users import answered
from loadtests.sse import Stream

usage = {"prompt_tokens": 7, "completion_tokens": 5}
print(answered(Stream(first_s=1.0, usage=usage), 3.0).per_token_s)
print(answered(Stream(first_s=1.0, usage={**usage, "completion_tokens": 1}), 3.0).per_token_s)
"""


def test_the_time_per_token_is_of_those_after_the_first() -> None:
    ended = subprocess.run([sys.executable, "-c", STREAMED], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stdout.split() == ["0.5", "None"]
