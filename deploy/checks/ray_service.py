"""Rules of KubeRay's operator that no schema has, and what the pods of a RayService must have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.checks.pods import environment, first_container, link_problems
from service.ray_environment import CONTROL, LOAD_REPORTS, LOGS, PRIORITY, PROXY_CHECKS, REPLACING, haproxy

Resource = dict[str, Any]
# What Ray needs at least for token authentication.
TOKEN_SINCE = (2, 52)
# In the environment of a container, but not in its manifest: the image has it.
OF_IMAGE = {"TRIFOLD_HAPROXY_BINARY", "TRIFOLD_PYTHON"}


def pods(service: Resource) -> dict[str, Resource]:
    """Return a RayService's pod templates by group."""
    cluster = service["spec"]["rayClusterConfig"]
    groups = {group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}
    return {"head": cluster["headGroupSpec"]["template"], **groups}


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
    ports = {port["name"] for port in first_container(cluster["headGroupSpec"]["template"])["ports"]}
    if "serve" not in ports:
        yield "headGroupSpec: a port must be named serve, or the operator makes no service"
    if cluster["headGroupSpec"]["rayStartParams"].get("num-cpus") != "0":
        yield "headGroupSpec.rayStartParams.num-cpus: must be 0, or replicas come to the head"
    yield from _autoscaler_problems(cluster)
    for name, pod in pods(service).items():
        if not first_container(pod)["name"].startswith("ray-"):
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
    of_head = {entry["name"]: entry for entry in first_container(pods(service)["head"])["env"]}
    needed = {**haproxy(""), **LOAD_REPORTS, **LOGS, **PRIORITY, **CONTROL, **PROXY_CHECKS, **REPLACING}
    needed["RAY_SERVE_HAPROXY_BINARY_PATH"] = "/app/service/haproxy.sh"
    for name, pod in pods(service).items():
        given = environment(pod)
        yield from (f"{name}: {problem}" for problem in link_problems(pod))
        here = {entry["name"]: entry for entry in first_container(pod)["env"]}
        for variable in sorted(of_head.keys() | here.keys()):
            if of_head.get(variable) != here.get(variable):
                yield f"{name}: {variable} is not what the head has"
        for variable, value in needed.items():
            if variable not in OF_IMAGE and given.get(variable) != value:
                yield f"{name}: {variable} must be {value}, and is {given.get(variable)}"


def budget_problems(budget: Resource) -> Iterator[str]:
    """Yield why a disruption budget of KubeRay's pods would block every drain."""
    of_ray = any(label.startswith("ray.io/") for label in budget["spec"]["selector"]["matchLabels"])
    if of_ray and not isinstance(budget["spec"].get("minAvailable"), int):
        yield "minAvailable must be a number: a RayCluster has no scale, which any other kind of budget is taken of"
