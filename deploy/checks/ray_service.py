"""Rules of KubeRay's operator that no schema has, how pods are locked down, and how timeouts nest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from service.api.routes import PROBE_TIMEOUT_S
from service.healthcheck import TIMEOUT_S
from service.ray_environment import LOAD_REPORTS, LOGS, REPLACING, haproxy
from service.settings import Limits
from service.timeouts import Timeouts

Resource = dict[str, Any]
# What Ray needs at least for token authentication.
TOKEN_SINCE = (2, 52)
DRAINING, DRAIN = "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
CLIENT, SERVER = "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S", "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S"
HARD_STOP = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"
# In the environment of a container, but not in its manifest: the image has it.
OF_IMAGE = {"TRIFOLD_HAPROXY_BINARY"}


def pods(service: Resource) -> dict[str, Resource]:
    """Return a RayService's pod templates by group."""
    cluster = service["spec"]["rayClusterConfig"]
    groups = {group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}
    return {"head": cluster["headGroupSpec"]["template"], **groups}


def ray_container(pod: Resource) -> Resource:
    """Return the container that Ray runs in: the first, as the operator has it."""
    container: Resource = pod["spec"]["containers"][0]
    return container


def environment(pod: Resource) -> dict[str, str]:
    """Return the plain environment variables of Ray's container."""
    return {entry["name"]: entry["value"] for entry in ray_container(pod)["env"] if "value" in entry}


def operator_problems(service: Resource) -> Iterator[str]:
    """Yield what the operator would refuse, or Ray ignore, when it is applied."""
    spec = service["spec"]
    cluster = spec["rayClusterConfig"]
    if "upgradeStrategy" in cluster:
        yield "rayClusterConfig.upgradeStrategy: belongs to the RayService, not to its cluster"
    if cluster.get("authOptions", {}).get("mode") == "token" and version(cluster.get("rayVersion", "")) < TOKEN_SINCE:
        yield f"rayVersion: token authentication needs {'.'.join(map(str, TOKEN_SINCE))} or newer"
    if not spec.get("excludeHeadPodFromServeSvc"):
        yield "excludeHeadPodFromServeSvc: the head must not take traffic"
    ports = {port["name"] for port in ray_container(cluster["headGroupSpec"]["template"])["ports"]}
    if "serve" not in ports:
        yield "headGroupSpec: a port must be named serve, or the operator makes no service"
    if cluster["headGroupSpec"]["rayStartParams"].get("num-cpus") != "0":
        yield "headGroupSpec.rayStartParams.num-cpus: must be 0, or replicas come to the head"
    yield from _autoscaler_problems(cluster)
    for name, pod in pods(service).items():
        if not ray_container(pod)["name"].startswith("ray-"):
            yield f"{name}: Ray's container must be the first"
        if "gcsFaultToleranceOptions" in cluster and environment(pod).keys() & {"REDIS_PASSWORD", "RAY_REDIS_ADDRESS"}:
            yield f"{name}: Redis is named in gcsFaultToleranceOptions, and may not be in the environment too"
    for group in cluster["workerGroupSpecs"]:
        if not group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]:
            yield f"{group['groupName']}: replicas must be between minReplicas and maxReplicas"
        if {"num-cpus", "num-gpus", "memory", "resources"} & group["rayStartParams"].keys() and "resources" in group:
            yield f"{group['groupName']}: resources are given twice, in rayStartParams and in resources"


def _autoscaler_problems(cluster: Resource) -> Iterator[str]:
    if cluster.get("autoscalerOptions", {}).get("version") != "v2":
        return
    for name, pod in pods({"spec": {"rayClusterConfig": cluster}}).items():
        if pod["spec"].get("restartPolicy", "Never") != "Never":
            yield f"{name}: restartPolicy must be Never with the autoscaler's version 2"
        if "RAY_enable_autoscaler_v2" in environment(pod):
            yield f"{name}: RAY_enable_autoscaler_v2 and autoscalerOptions.version exclude one another"


def version(text: str) -> tuple[int, ...]:
    """Return a version's numbers."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def environment_problems(service: Resource) -> Iterator[str]:
    """Yield what a pod's environment lacks: HAProxy as the ingress, how often load is told, what the head has."""
    of_head = {entry["name"]: entry for entry in ray_container(pods(service)["head"])["env"]}
    needed = {**haproxy(""), **LOAD_REPORTS, **LOGS, **REPLACING}
    needed["RAY_SERVE_HAPROXY_BINARY_PATH"] = "/app/service/haproxy.sh"
    for name, pod in pods(service).items():
        given = environment(pod)
        if pod["spec"].get("enableServiceLinks") is not False:
            yield f"{name}: enableServiceLinks must be false, or variables of services named trifold-… stop the service"
        here = {entry["name"]: entry for entry in ray_container(pod)["env"]}
        for variable in sorted(of_head.keys() | here.keys()):
            if of_head.get(variable) != here.get(variable):
                yield f"{name}: {variable} is not what the head has"
        for variable, value in needed.items():
            if variable not in OF_IMAGE and given.get(variable) != value:
                yield f"{name}: {variable} must be {value}, and is {given.get(variable)}"


def security_problems(resource: Resource) -> Iterator[str]:
    """Yield what a pod may do beyond what it needs, of any kind of resource that has pods."""
    for where, pod in _pod_specs(resource, resource["kind"]):
        context = pod.get("securityContext", {})
        if not context.get("runAsNonRoot") or context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{where}: must run as another user than root, with seccomp's RuntimeDefault"
        if pod.get("automountServiceAccountToken", True) and "headGroupSpec" not in where:
            yield f"{where}: must not have a service account's token"
        if any("hostPath" in volume for volume in pod.get("volumes", [])) or pod.get("hostNetwork"):
            yield f"{where}: must not use the node's files or network"
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            yield from _container_problems(f"{where}.{container['name']}", container)


def _pod_specs(value: Any, where: str) -> Iterator[tuple[str, Resource]]:
    """Yield the pod specifications anywhere in a resource, with where they are."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield where, value
            return
        for name, part in value.items():
            yield from _pod_specs(part, f"{where}.{name}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _pod_specs(part, f"{where}.{index}")


def _container_problems(where: str, container: Resource) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False or context.get("capabilities", {}).get("drop") != ["ALL"]:
        yield f"{where}: must drop all capabilities and not gain others"
    if not context.get("readOnlyRootFilesystem"):
        yield f"{where}: must have a read-only root file system"
    if ":" not in container["image"] or container["image"].endswith(":latest"):
        yield f"{where}: its image must have a version"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield f"{where}: must have a limit of memory"
    for entry in container.get("env", []):
        is_secret = any(word in entry["name"] for word in ("KEY", "TOKEN", "PASSWORD"))
        if is_secret and not entry["name"].endswith("_FILE") and "value" in entry:
            yield f"{where}: {entry['name']} is a secret, and must come from one"


def budget_problems(budget: Resource) -> Iterator[str]:
    """Yield why a disruption budget of KubeRay's pods would block every drain."""
    of_ray = any(label.startswith("ray.io/") for label in budget["spec"]["selector"]["matchLabels"])
    if of_ray and not isinstance(budget["spec"].get("minAvailable"), int):
        yield "minAvailable must be a number: a RayCluster has no scale, which any other kind of budget is taken of"


def timeout_problems(service: Resource) -> Iterator[str]:
    """Yield where an outer timeout would cut off an inner one's answer."""
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    serve_s = config["http_options"]["request_timeout_s"]
    limits = limits_of(environment(pods(service)["head"]))
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
            yield from _probe_problems(name, ray_container(pod).get("readinessProbe"))


def limits_of(given: dict[str, str]) -> Limits:
    """Return the limits of requests that an environment sets."""
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
    what = f"{name}: readinessProbe.timeoutSeconds"
    yield from must_exceed(what, probe["timeoutSeconds"], "service.healthcheck's", TIMEOUT_S)
    what = f"{name}: readinessProbe.periodSeconds"
    yield from must_exceed(what, probe["periodSeconds"], "its timeoutSeconds", probe["timeoutSeconds"])


def must_exceed(outer: str, outer_s: float, inner: str, inner_s: float) -> Iterator[str]:
    """Yield what is wrong where an outer timeout, in seconds, is not longer than one within it."""
    if outer_s <= inner_s:
        yield f"{outer} is {outer_s:g} s, and must exceed {inner}, {inner_s:g} s"
