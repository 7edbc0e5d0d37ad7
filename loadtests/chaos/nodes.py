"""What each node of a cluster runs, and what Ray's autoscaler is told of the types of nodes that it may rent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.chaos.cloud import HEAD
from loadtests.chaos.hosts import NUMBERS, address_of

GCS_PORT, DASHBOARD_PORT = 6379, 8265
OBJECT_STORE_BYTES = 128 * 2**20
IDLE_MINUTES = 1 / 3  # after which a node without replicas is given back; minutes, as Ray has it
NOTHING_TO_DO = [
    "cluster_synced_files",
    "initialization_commands",
    *(f"{prefix}setup_commands" for prefix in ("", "head_", "worker_")),
    *(f"{prefix}_start_ray_commands" for prefix in ("head", "worker")),
]


@dataclass(frozen=True)
class NodeType:
    """Nodes that the autoscaler may rent."""

    resources: Mapping[str, float]
    min_workers: int
    max_workers: int

    def as_ray_has_it(self) -> dict[str, Any]:
        """Return the entry of the autoscaler's configuration."""
        bounds = {"min_workers": self.min_workers, "max_workers": self.max_workers}
        return {"resources": dict(self.resources), "node_config": {}, **bounds}


@dataclass(frozen=True)
class Commands:
    """What hosts run."""

    environment: Mapping[str, str]
    autoscaler: Path  # its configuration

    def __call__(
        self, name: str, kind: str, ip: str, resources: Mapping[str, float]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command of a host, and its environment."""
        environment = {**self.environment, "RAY_CLOUD_INSTANCE_ID": name, "RAY_NODE_TYPE_NAME": kind}
        start = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        start += ["--node-ip-address", ip, "--object-store-memory", str(OBJECT_STORE_BYTES)]
        if kind != HEAD:
            counts = ["--num-cpus", f"{resources.get('CPU', 0):g}", "--num-gpus", f"{resources.get('GPU', 0):g}"]
            return [*start, "--address", f"{address_of(NUMBERS[0])}:{GCS_PORT}", *counts], environment
        start += ["--head", "--port", str(GCS_PORT), "--num-cpus", "0", "--autoscaling-config", str(self.autoscaler)]
        if "REDIS_PASSWORD" in environment:
            start += ["--redis-password", environment["REDIS_PASSWORD"]]
        return [*start, "--dashboard-host", ip, "--dashboard-port", str(DASHBOARD_PORT)], environment


def autoscaler(node_types: Mapping[str, NodeType], address: str) -> dict[str, Any]:
    """Return the configuration of Ray's autoscaler; `address` is the cloud's."""
    return {
        "cluster_name": "trifold",
        "max_workers": sum(node_type.max_workers for node_type in node_types.values()),
        "idle_timeout_minutes": IDLE_MINUTES,
        "upscaling_speed": 1.0,
        "provider": {
            "type": "external",
            "module": "loadtests.chaos.provider.Hosts",
            "address": address,
            "disable_node_updaters": True,
        },
        "head_node_type": HEAD,
        **{name: [] for name in NOTHING_TO_DO},  # a host has all that it needs
        "auth": {},
        "file_mounts": {},
        "available_node_types": {
            HEAD: NodeType({"CPU": 0}, 0, 0).as_ray_has_it(),
            **{name: node_type.as_ray_has_it() for name, node_type in node_types.items()},
        },
    }
