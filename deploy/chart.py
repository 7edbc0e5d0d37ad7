"""The Helm chart's files: what each component makes, as `deploy/kubernetes` has it.

The chart's templates change what the values ask for in these resources, so that a pod is described in one place for
Kustomize and Helm.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.kustomize import KUBERNETES, compose

CHART = Path(__file__).parent / "helm" / "trifold"
SERVED = ("cpu", "gpu", "dev")
ADDED = {
    "base": (
        *("ha", "monitoring", "network-policy/plain", "network-policy/gke", "network-policy/eks"),
        *("network-policy/store", "gateway-api/plain", "gateway-api/gke", "ingress/eks"),
    ),
    "plain": ("keda",),
}
PACKAGES = ("store", "volume", "image")  # of components/models: where packages in all pods come from
# What components change in resources of others, from where they say it.
COPIED = {
    "fault-tolerance": KUBERNETES / "components" / "ha" / "fault-tolerance.yaml",
    "reconnection": KUBERNETES / "components" / "ha" / "reconnection.yaml",
    "models-file": KUBERNETES / "components" / "models-file" / "mount.yaml",
}

Resource = dict[str, Any]


def chart_files() -> Iterator[tuple[Path, str]]:
    """Yield each file of the chart that is made of the components, with its content."""
    for served in SERVED:
        yield _file(served, compose("base", [served]))
    yield _file("plain", compose("plain", []))
    for base, components in ADDED.items():
        there = {_name(resource) for resource in compose(base, [])}
        for component in components:
            added = [each for each in compose(base, [component]) if _name(each) not in there]
            yield _file(component.replace("/", "-"), added)
    for packages in PACKAGES:
        yield _file(f"models-{packages}", [_into_pods(f"models/{packages}")])
    for name, source in COPIED.items():
        yield CHART / "files" / f"{name}.yaml", source.read_text()


def _into_pods(component: str) -> Resource:
    """Return what a component adds to a pod, by field; to that of plain, as to any other."""
    before, after = (_pod(compose("plain", components)) for components in ([], [component]))
    (of_before,), (of_after,) = before["containers"], after["containers"]
    return {
        "volumes": _added(before, after, "volumes"),
        "volumeMounts": _added(of_before, of_after, "volumeMounts"),
        "initContainers": _added(before, after, "initContainers"),
    }


def _pod(resources: list[Resource]) -> Resource:
    (deployment,) = (each for each in resources if each["kind"] == "Deployment")
    pod: Resource = deployment["spec"]["template"]["spec"]
    return pod


def _added(before: Resource, after: Resource, field: str) -> list[Resource]:
    return [each for each in after.get(field, []) if each not in before.get(field, [])]


def _name(resource: Resource) -> tuple[str, str]:
    return resource["kind"], resource["metadata"]["name"]


def _file(name: str, resources: list[Resource]) -> tuple[Path, str]:
    """Return a file of resources; the namespace is the release's, and helm's to make."""
    texts = [
        yaml.safe_dump(each, sort_keys=False, width=1000, allow_unicode=True)
        for each in resources
        if each.get("kind") != "Namespace"
    ]
    return CHART / "files" / f"{name}.yaml", "---\n".join(texts)
