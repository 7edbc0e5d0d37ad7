"""As on a cluster: a Ray node started by `ray start`, and Serve's configuration applied to it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.monitoring.local import free_port
from service.ray_environment import (
    FALLBACK_PORT,
    LOAD_REPORTS,
    LOGS,
    PRIORITY,
    REPLACING,
    SINGLE_MACHINE,
    haproxy,
    haproxy_binary,
)
from service.serve_config import replicas_per_node, serve_config
from service.settings import Limits, Settings
from service.timeouts import Timeouts
from tests.conftest import MakePackage
from tests.integration.processes import ROOT, running

pytestmark = pytest.mark.integration

WITHIN_S = 120
TIMEOUTS = Timeouts.of(Limits())
BODY = {"prompt": "Once", "max_tokens": 5, "temperature": 0}


@dataclass(frozen=True)
class Cluster:
    """One node, its dashboard, and where its configuration comes from."""

    environment: dict[str, str]
    dashboard: str
    address: str
    models_file: Path
    folder: Path

    def apply(self, package: Path, **values: Any) -> None:
        """Write a models file and apply what is made of it, for a single node: one replica of each."""
        self.models_file.write_text(yaml.safe_dump({"models": [{"package": str(package), **values}]}))
        config = serve_config(Settings(models_file=self.models_file).models(replicas_per_node), TIMEOUTS)
        config["http_options"] |= {"host": "127.0.0.1", "port": int(self.address.rpartition(":")[2])}
        for application in config["applications"]:
            (deployment,) = application["deployments"]
            if "autoscaling_config" in deployment:
                # While one more has no room here, which load may ask for, Serve would replace none.
                at_most = {} if "autoscaling" in values else {"max_replicas": 1}
                deployment["autoscaling_config"] |= {"min_replicas": 1, **at_most}
            else:
                deployment["num_replicas"] = 1
        (self.folder / "serve.yaml").write_text(yaml.safe_dump(config))
        serve = Path(sys.executable).with_name("serve")
        command = [str(serve), "deploy", str(self.folder / "serve.yaml"), "--address", self.dashboard]
        subprocess.run(command, cwd=ROOT, env=self.environment, check=True, capture_output=True)

    def applications(self) -> dict[str, Any]:
        """Return what Serve says of its applications, by name."""
        headers = {"Authorization": f"Bearer {self.environment['RAY_AUTH_TOKEN']}"}
        told = httpx.get(f"{self.dashboard}/api/serve/applications/", headers=headers, timeout=5)
        applications: dict[str, Any] = told.json()["applications"]
        return applications

    def replicas(self) -> set[str]:
        """Return the names of all replicas."""
        return {
            replica["replica_id"]
            for application in self.applications().values()
            for deployment in application["deployments"].values()
            for replica in deployment["replicas"]
        }

    def slots(self) -> float | None:
        """Return the size of the model's KV cache, as its replica tells it."""
        try:
            page = httpx.get(f"{self.address}/metrics", headers={"X-API-Key": "secret"}, timeout=5).text
        except httpx.HTTPError:
            return None
        told = [line for line in page.splitlines() if line.startswith('trifold_kv_slots{model="stories"}')]
        return float(told[0].split()[-1]) if told else None

    def wait_for(self, slots: float) -> None:
        deadline = time.monotonic() + WITHIN_S
        while self.slots() != slots:
            assert time.monotonic() < deadline, f"the model has {self.slots()} slots, and not {slots}"
            time.sleep(0.5)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start one node, head and worker in one, with token authentication and an API key."""
    folder, binary = tmp_path_factory.mktemp("cluster"), haproxy_binary()
    assert binary is not None
    dashboard, port = free_port(), free_port()
    environment = {
        **os.environ,
        **haproxy(binary),
        **LOAD_REPORTS,
        **LOGS,
        **SINGLE_MACHINE,
        **PRIORITY,
        **REPLACING,
        **TIMEOUTS.haproxy(),
        FALLBACK_PORT: str(free_port()),
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "1",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        "TRIFOLD_API_KEYS": '["secret"]',
        "TRIFOLD_METRICS_DIR": str(folder / "metrics"),
        "TRIFOLD_METRICS_PORT": "0",
        "TRIFOLD_MODELS_FILE": str(folder / "models.yaml"),
    }
    with tempfile.TemporaryDirectory(prefix="r") as temporary:  # a short path, for Ray's sockets
        command = [
            *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--disable-usage-stats"),
            *("--num-cpus", "2", "--object-store-memory", str(2**28), "--temp-dir", temporary),
            *("--port", str(free_port()), "--dashboard-port", str(dashboard), "--dashboard-host", "127.0.0.1"),
        ]
        address = f"http://127.0.0.1:{port}"
        node = Cluster(environment, f"http://127.0.0.1:{dashboard}", address, folder / "models.yaml", folder)
        with running(command, environment, folder / "log") as process:
            wait_for_dashboard(node, process, folder / "log")
            yield node


def wait_for_dashboard(node: Cluster, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + WITHIN_S
    headers = {"Authorization": f"Bearer {node.environment['RAY_AUTH_TOKEN']}"}
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{node.dashboard}/api/serve/applications/", headers=headers, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise AssertionError(log.read_text())


def test_a_configuration_made_from_a_models_file_serves_and_changes_with_it(
    cluster: Cluster, make_package: MakePackage
) -> None:
    package = make_package("stories", "int8").folder
    cluster.apply(package, max_slots=8)
    cluster.wait_for(slots=8)

    without_key = httpx.post(f"{cluster.address}/generate", json=BODY, timeout=30)
    answer = httpx.post(f"{cluster.address}/generate", json=BODY, headers={"X-API-Key": "secret"}, timeout=30)
    assert (without_key.status_code, answer.status_code) == (401, 200)

    cluster.apply(package, max_slots=16)
    cluster.wait_for(slots=16)
    answer = httpx.post(f"{cluster.address}/generate", json=BODY, headers={"X-API-Key": "secret"}, timeout=30)
    assert answer.status_code == 200


def test_another_bound_of_replicas_restarts_nothing(cluster: Cluster, make_package: MakePackage) -> None:
    package = make_package("stories", "int8").folder
    cluster.apply(package, max_slots=16, autoscaling={"max_replicas": 2})
    cluster.wait_for(slots=16)
    before = cluster.replicas()

    cluster.apply(package, max_slots=16, autoscaling={"max_replicas": 3})
    deadline = time.monotonic() + WITHIN_S
    while cluster.applications()["stories"]["deployments"]["model"]["deployment_config"]["autoscaling_config"][
        "max_replicas"
    ] != 3 or any(application["status"] != "RUNNING" for application in cluster.applications().values()):
        assert time.monotonic() < deadline, cluster.applications()
        time.sleep(0.5)

    assert len(before) == 2 and cluster.replicas() == before


def test_nobody_deploys_without_the_token(cluster: Cluster) -> None:
    assert httpx.get(f"{cluster.dashboard}/api/serve/applications/", timeout=5).status_code == 401


def test_a_replica_that_is_replaced_finishes_its_streams(cluster: Cluster, make_package: MakePackage) -> None:
    package, key = make_package("stories", "int8").folder, {"X-API-Key": "secret"}
    cluster.apply(package, max_slots=1)
    cluster.wait_for(slots=1)
    begun = threading.Event()

    def read() -> list[str]:
        body = {"prompt": "Once", "max_tokens": 120, "min_tokens": 120, "n": 256, "stream": True}
        with httpx.stream("POST", f"{cluster.address}/generate", json=body, headers=key, timeout=120) as response:
            lines = []
            for line in response.iter_lines():
                begun.set()
                lines.append(line)
        return [line for line in lines if line]

    with ThreadPoolExecutor() as pool:
        stream = pool.submit(read)
        assert begun.wait(30)
        cluster.apply(package, max_slots=2)
        assert not stream.done(), "it was too short to show anything"
        lines = stream.result()

    assert lines[-1] == "data: [DONE]" and sum('"finish_reason"' in line for line in lines) == 256
    cluster.wait_for(slots=2)
