"""How timeouts nest: those of the service, of Ray Serve and HAProxy, of probes, and of a pod that is to end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from deploy.checks.pods import environment, first_container
from deploy.checks.ray_service import pods
from service.api.probe_routes import PROBE_TIMEOUT_S
from service.healthcheck import TIMEOUT_S
from service.settings import Limits
from service.timeouts import Timeouts

Resource = dict[str, Any]
DRAINING, DRAIN = "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
CLIENT, SERVER = "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S", "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S"
HARD_STOP = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"
INGRESS = "/-/healthz"  # Ray Serve's path, behind which HAProxy answers while there is any replica


def timeout_problems(service: Resource) -> Iterator[str]:
    """Yield where an outer timeout would cut off an inner one's answer."""
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    serve_s = config["http_options"]["request_timeout_s"]
    limits = limits_of(service)
    deadline = limits.request_timeout_s
    yield from must_exceed("http_options.request_timeout_s", serve_s, "the service's deadline", deadline)
    given = [
        deployment["graceful_shutdown_timeout_s"]
        for application in config["applications"]
        for deployment in application["deployments"]
    ]
    graceful = max(given)
    finishing = float(environment(pods(service)["head"]).get(DRAINING, 0)) + deadline
    yield from must_exceed("graceful_shutdown_timeout_s", min(given), "notice and the service's deadline", finishing)
    yield from must_exceed("service.healthcheck's timeout", TIMEOUT_S, "/ready's own", PROBE_TIMEOUT_S)
    for name, pod in pods(service).items():
        yield from _leaving_problems(name, pod, graceful)
        yield from _ingress_problems(name, pod, limits, serve_s)
        if name != "head":
            yield from _probe_problems(name, first_container(pod).get("readinessProbe"))


def limits_of(service: Resource) -> Limits:
    """Return the limits of requests that a RayService or a Deployment sets in its environment."""
    pod = pods(service)["head"] if service["kind"] == "RayService" else service["spec"]["template"]
    given = environment(pod)
    prefix = "TRIFOLD_LIMITS__"
    return Limits.model_validate({k.removeprefix(prefix).lower(): v for k, v in given.items() if k.startswith(prefix)})


def _ingress_problems(name: str, pod: Resource, limits: Limits, serve_s: float) -> Iterator[str]:
    """Yield where HAProxy would end a request before Serve or the service itself does."""
    given = environment(pod)
    if missing := Timeouts.of(limits).haproxy().keys() - given.keys():
        yield f"{name}: {', '.join(sorted(missing))} must be set"
        return
    serve = "http_options.request_timeout_s"
    for variable in (SERVER, HARD_STOP):
        yield from must_exceed(f"{name}: {variable}", float(given[variable]), serve, serve_s)
    slowest = max(limits.body_timeout_s, limits.stall_timeout_s)
    yield from must_exceed(f"{name}: {CLIENT}", float(given[CLIENT]), "the service's own patience", slowest)


def _leaving_problems(name: str, pod: Resource, graceful: float) -> Iterator[str]:
    """Yield what would end a pod before what it has begun."""
    given = environment(pod)
    if missing := {DRAINING, DRAIN} - given.keys():
        yield f"{name}: {', '.join(sorted(missing))} must be set"
        return
    # Ray lets a replica take requests while load balancers notice, within the same time, and makes that long enough.
    leaving = max(graceful, float(given[DRAINING]) + 5)
    drain = float(given[DRAIN])
    yield from must_exceed(f"{name}: {DRAIN}", drain, "what a replica has to finish", leaving)
    grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
    yield from must_exceed(f"{name}: terminationGracePeriodSeconds", grace, "Ray's drain", drain)


def _probe_problems(name: str, probe: Resource | None) -> Iterator[str]:
    if probe is None:
        yield f"{name}: needs a readinessProbe of its own; the operator's needs wget"
        return
    if probe.get("httpGet", {}).get("path") != INGRESS:
        yield f"{name}: readinessProbe must ask for {INGRESS}, which the pod's own ingress answers"
    what = f"{name}: readinessProbe.periodSeconds"
    yield from must_exceed(what, probe["periodSeconds"], "its timeoutSeconds", probe["timeoutSeconds"])


def must_exceed(outer: str, outer_s: float, inner: str, inner_s: float) -> Iterator[str]:
    """Yield what is wrong where an outer timeout, in seconds, is not longer than one within it."""
    if outer_s <= inner_s:
        yield f"{outer} is {outer_s:g} s, and must exceed {inner}, {inner_s:g} s"
