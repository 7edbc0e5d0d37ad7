"""The chart as values render it."""

from __future__ import annotations

from typing import Any

import helm_python
import yaml

Resource = dict[str, Any]

ALONE: dict[str, Any] = {"ha": {"enabled": False}, "networkPolicy": "none"}
PACKAGES = [
    {"name": "sentiment", "from": "s3://models.example.com/sentiment-2", "sha256": 64 * "7"},
    {"name": "writer", "from": "https://huggingface.co/org/writer/resolve/0123abc"},
]
STORE = {"from": "store", "list": PACKAGES}


def rendered(chart: helm_python.Chart, namespace: str = "trifold", **values: Any) -> dict[tuple[str, str], Resource]:
    """Return what `helm template` makes, after `values.schema.json` has let the values pass."""
    chart.validate_schema(chart.merge_values(values))
    made = chart.render(values, name="trifold", namespace=namespace)
    return by_name(list(yaml.safe_load_all(made["trifold/templates/resources.yaml"])))


def by_name(resources: list[Resource]) -> dict[tuple[str, str], Resource]:
    found = [each for each in resources if each is not None and each["kind"] != "Namespace"]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def templates(resources: dict[tuple[str, str], Resource]) -> list[Resource]:
    """Return the templates of all pods that have the service."""
    if deployment := resources.get(("Deployment", "trifold")):
        return [deployment["spec"]["template"]]
    cluster = resources["RayService", "trifold"]["spec"]["rayClusterConfig"]
    return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
