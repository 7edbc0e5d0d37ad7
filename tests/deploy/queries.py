"""What alert rules, dashboards and KEDA ask Prometheus for: metrics and labels, taken from their queries."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from deploy.kustomize import KUBERNETES
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.rules import rules

# Of other exporters (NVIDIA's DCGM, the kubelet, Prometheus itself), which do not run beside the service in a test.
ELSEWHERE = re.compile("up|(DCGM|container|kube)_.*")
# Given by Prometheus when it scrapes.
OF_TARGET = {"instance", "job", "cluster", "namespace"}

_METRIC = re.compile(r"\b((?:trifold|ray|haproxy|DCGM|container|kube)_\w+|up)\b(?!\s*\()(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def queries() -> Iterator[str]:
    """Yield every query but for the names of recorded ratios, which are queries themselves."""
    for group in rules()["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for dashboard in DASHBOARDS:
        yield from (query for panel in dashboard.panels for query in panel.queries)
    scaled = yaml.safe_load((KUBERNETES / "components" / "keda" / "scaledobject.yaml").read_text())
    yield from (trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"])


def asked_for(query: str) -> tuple[set[str], set[str]]:
    """Return a query's metrics, and its labels: those it selects by and those it groups by."""
    bare = re.sub(r"\bmodel:\w+:\w+", "", query)  # a recorded ratio
    metrics, labels = set(), set()
    for name, selectors in _METRIC.findall(bare):
        metrics.add(name)
        labels |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
    for names in _GROUPING.findall(bare):
        labels |= {name.strip() for name in names.split(",")} - {""}
    return metrics, labels - OF_TARGET
