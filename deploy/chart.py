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
        *("gateway-api/plain", "gateway-api/gke", "ingress/eks"),
    ),
    "plain": ("keda",),
}
# What components change in resources of others, from where they say it.
COPIED = {
    "fault-tolerance": KUBERNETES / "components" / "ha" / "fault-tolerance.yaml",
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
    for name, source in COPIED.items():
        yield CHART / "files" / f"{name}.yaml", source.read_text()


def _name(resource: Resource) -> tuple[str, str]:
    return resource["kind"], resource["metadata"]["name"]


def _file(name: str, resources: list[Resource]) -> tuple[Path, str]:
    """Return a file of resources; the namespace is the release's, and helm's to make."""
    texts = [
        yaml.safe_dump(each, sort_keys=False, width=1000, allow_unicode=True)
        for each in resources
        if each["kind"] != "Namespace"
    ]
    return CHART / "files" / f"{name}.yaml", "---\n".join(texts)
