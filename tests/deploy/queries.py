"""What alert rules, dashboards and KEDA ask Prometheus for, and what of it nobody shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import yaml

from deploy.kustomize import KUBERNETES
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.rules import rules

# Of other exporters (NVIDIA's DCGM, the kubelet, Prometheus itself), which do not run beside the service in a test; and
# what Ray shows only once it has ended a worker for want of memory.
ELSEWHERE = re.compile("up|(DCGM|container|kube)_.*|ray_memory_manager_worker_eviction_total")
# Given by Prometheus when it scrapes.
OF_TARGET = {"instance", "job", "cluster", "namespace"}

_METRIC = re.compile(r"\b((?:trifold|ray|haproxy|DCGM|container|kube)_\w+|up)\b(?!\s*\()(?:\{([^}]*)\})?")
_SELECTED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_AGGREGATED = re.compile(r"\bby\s*\(([^)]*)\)\s*(?=\()")
_JOINED = re.compile(r"\bon\s*\(([^)]*)\)")

Labels = Mapping[str, set[str]]


def queries() -> Iterator[str]:
    """Yield every query but for the names of recorded ratios, which are queries themselves."""
    for group in rules()["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for dashboard in DASHBOARDS:
        yield from (query for panel in dashboard.panels for query in panel.queries)
    scaled = yaml.safe_load((KUBERNETES / "components" / "keda" / "scaledobject.yaml").read_text())
    yield from (trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"])


def unknown(query: str, labels: Labels) -> Iterator[str]:
    """Yield what a query asks for and nobody shows, given the labels of every metric that somebody does.

    A metric must have the labels that it is selected by, and those of each `by (...)` around it. Of what is joined
    `on (...)` a metric of either side must have them.
    """
    bare = re.sub(r'"[^"]*"', '""', query)  # what labels are compared with may look like anything
    bare = re.sub(r"\bmodel:\w+:\w+(\{[^}]*\})?", "", bare)  # a recorded ratio, which is a query itself
    for metric, selectors in _METRIC.findall(bare):
        if metric not in labels and not ELSEWHERE.fullmatch(metric):
            yield f"no metric {metric}: {query}"
        yield from _missing(_SELECTED.findall(selectors), [metric], labels, query)
    for found in _AGGREGATED.finditer(bare):
        for metric in _metrics(_parenthesis(bare[found.end() :])):
            yield from _missing(_names(found[1]), [metric], labels, query)
    for found in _JOINED.finditer(bare):
        for side in (bare[: found.start()], bare[found.end() :]):
            yield from _missing(_names(found[1]), _metrics(side), labels, query)


def _missing(wanted: Iterable[str], metrics: list[str], labels: Labels, query: str) -> Iterator[str]:
    """Yield the labels that none of some metrics has, unless there is one that nobody shows here."""
    if metrics and all(metric in labels for metric in metrics):
        shown = OF_TARGET.union(*(labels[metric] for metric in metrics))
        yield from (f"no label {label} of {', '.join(metrics)}: {query}" for label in wanted if label not in shown)


def _metrics(text: str) -> list[str]:
    return [metric for metric, _ in _METRIC.findall(text)]


def _names(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _parenthesis(text: str) -> str:
    """Return what is within the parenthesis with which a text begins."""
    depth = 0
    for position, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return text[1:position]
    raise ValueError(f"a parenthesis is not closed: {text}")
