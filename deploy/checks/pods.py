"""Pods of any kind: their environment, how they are locked down, and what Kubernetes must not put into them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

Resource = dict[str, Any]


def first_container(pod: Resource) -> Resource:
    """Return the container that the service runs in; KubeRay's operator takes the first for Ray's."""
    container: Resource = pod["spec"]["containers"][0]
    return container


def environment(pod: Resource) -> dict[str, str]:
    """Return the plain environment variables of the service's container."""
    return {entry["name"]: entry["value"] for entry in first_container(pod)["env"] if "value" in entry}


def link_problems(pod: Resource) -> Iterator[str]:
    """Yield what would let Kubernetes add variables to a pod that the service takes for settings of its own."""
    if pod["spec"].get("enableServiceLinks") is not False:
        yield "enableServiceLinks must be false, or variables of services named trifold-… stop the service"


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


def file_problems(resource: Resource) -> Iterator[str]:
    """Yield what a pod's containers are told to read, or have mounted, that is not there."""
    claims = {claim["metadata"]["name"] for claim in resource.get("spec", {}).get("volumeClaimTemplates", [])}
    for where, pod in _pod_specs(resource, resource["kind"]):
        volumes = claims | {volume["name"] for volume in pod.get("volumes", [])}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
            for name in sorted(set(mounts.values()) - volumes):
                yield f"{where}.{container['name']}: there is no volume {name} to mount"
            for entry in container.get("env", []):
                folder = str(PurePosixPath(entry.get("value", "")).parent)
                if entry["name"].endswith("_FILE") and folder not in mounts:
                    yield f"{where}.{container['name']}: {entry['name']}: nothing is mounted at {folder}"


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
