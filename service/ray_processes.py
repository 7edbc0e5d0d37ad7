"""Ray on a single machine, without two processes that are of no use there.

`ray.init` has no argument against them: the log monitor, which would print replicas' lines here a second time, and the
dashboard, which even where it is switched off counts Ray's usage. They take 45 and 75 MB, and wake several times a
second. The autoscaler's monitor has no nodes to add, but the number of nodes in Ray's metrics is its.
"""

from __future__ import annotations

import ray
from ray._private import worker
from ray._private.node import Node

# Requests and answers of the gateway pass through it; Ray would take a third of the memory.
OBJECT_STORE_BYTES = 256 * 2**20


def start_ray(metrics_port: int | None) -> None:
    """Start Ray on this machine, for this process and its children alone."""
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _metrics_export_port=metrics_port,
    )
    node: Node = worker._global_node  # type: ignore[assignment]  # which it has said is None
    for end in (node.kill_log_monitor, node.kill_dashboard):
        end(check_alive=False)
