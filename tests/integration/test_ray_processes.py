"""Ray's own start, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.integration

# Ray gives up waiting for its processes as often as is asked for, by the error that it gives up with.
STARTS = """
import json, sys
import psutil
from ray._private import services
from service import ray_processes
from service.signals import UntilReady

def times_out(*_args, failures=[Exception("timed out during startup")] * int(sys.argv[1]), get_node=services.get_node):
    if failures:
        raise failures.pop()
    return get_node(*_args)

services.get_node = times_out
error = None
try:
    ray_processes.start_ray(None, UntilReady())
except Exception as raised:
    error = str(raised)
running = [child.name() for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
print(json.dumps({"error": error, "running": running}))
"""

REPORTS = """
import logging, time
import ray
from ray._private.utils import publish_error_to_driver
from ray._private.worker import global_worker
from service import ray_processes
from service.signals import UntilReady

logging.basicConfig(level=logging.WARNING)
logged = []
ray_processes.logger.addFilter(lambda record: logged.append(record) or True)
ray_processes.start_ray(None, UntilReady())
publish_error_to_driver("test", "before the end", gcs_client=global_worker.gcs_client)
deadline = time.monotonic() + 60
while not logged and time.monotonic() < deadline:
    time.sleep(0.1)
ray_processes.expect_ray_to_end()
publish_error_to_driver("test", "at the end", gcs_client=global_worker.gcs_client)
time.sleep(2)  # until Ray has brought it
ray.shutdown()
"""


def started(failures: int) -> dict[str, Any]:
    output = subprocess.run([sys.executable, "-c", STARTS, str(failures)], check=True, capture_output=True, text=True)
    start: dict[str, Any] = json.loads(output.stdout.splitlines()[-1])
    return {**start, "log": output.stderr}


def test_ray_is_started_again_where_its_processes_were_not_up_in_time() -> None:
    start = started(failures=1)

    assert start["error"] is None
    assert start["log"].count("Ray did not start, and is started again: timed out during startup") == 1
    assert start["running"].count("gcs_server") == start["running"].count("raylet") == 1


def test_ray_that_never_starts_is_an_error_that_leaves_no_process() -> None:
    start = started(failures=99)

    assert start["error"] == "timed out during startup"
    assert not {"gcs_server", "raylet"} & set(start["running"])


def test_what_ray_reports_is_logged_until_it_is_to_end() -> None:
    output = subprocess.run([sys.executable, "-c", REPORTS], check=True, capture_output=True, text=True)

    assert [line for line in output.stderr.splitlines() if "the end" in line] == [
        "WARNING:service.ray_processes:Ray reports: before the end"
    ]
    assert not output.stdout
