"""What stands before the service must wait for it longer than Serve does, and keep idle connections no longer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deploy.checks.timeouts import must_exceed
from service.settings import Limits
from service.timeouts import KEEP_ALIVE_S, Timeouts

Resource = dict[str, Any]
Waits = Iterator[tuple[str, float]]  # where, and for how many seconds

OF_GOOGLE_S = 600.0  # for which its load balancers keep an idle connection; nobody can change it
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def too_impatient(waits: Waits, limits: Limits) -> Iterator[str]:
    """Yield where an answer would be cut off that is still to come, by the limits that the service has."""
    for where, seconds in waits:
        yield from must_exceed(where, seconds, "http_options.request_timeout_s", Timeouts.of(limits).serve)


def closed_too_soon(kept: Waits) -> Iterator[str]:
    """Yield what keeps idle connections for as long as HAProxy does, which would close one as a request comes."""
    for where, seconds in kept:
        yield from must_exceed("http_options.keep_alive_timeout_s", KEEP_ALIVE_S, where, seconds)


def _of_route(route: Resource) -> Waits:
    """Yield the timeouts of an HTTPRoute's rules; one without any leaves it to the load balancer's policy."""
    for index, rule in enumerate(route["spec"]["rules"]):
        for name, duration in rule.get("timeouts", {}).items():
            parts = re.findall(r"(\d+)(h|ms|m|s)", duration)
            yield f"rules.{index}.timeouts.{name}", sum(int(number) * _UNITS[unit] for number, unit in parts)


def _of_policy(policy: Resource) -> Waits:
    """Yield the timeout of GKE's load balancer, 30 s unless it is set."""
    yield "default.timeoutSec", policy["spec"]["default"].get("timeoutSec", 30)


def _of_ingress(ingress: Resource) -> Waits:
    """Yield the timeout of AWS's load balancer, 60 s unless it is set."""
    attributes = ingress["metadata"]["annotations"].get("alb.ingress.kubernetes.io/load-balancer-attributes", "")
    given = re.search(r"idle_timeout\.timeout_seconds=(\d+)", attributes)
    yield "idle_timeout.timeout_seconds", float(given[1]) if given else 60


def _kept_by_google(_policy: Resource) -> Waits:
    """Yield for how long GKE's load balancer keeps idle connections."""
    yield "Google's load balancer", OF_GOOGLE_S


IDLE: Mapping[str, Callable[[Resource], Waits]] = {"GCPBackendPolicy": _kept_by_google, "Ingress": _of_ingress}
PATIENCE: Mapping[str, Callable[[Resource], Waits]] = {
    "HTTPRoute": _of_route,
    "GCPBackendPolicy": _of_policy,
    "Ingress": _of_ingress,
}
