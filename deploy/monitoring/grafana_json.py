"""Panels and dashboards as values, and as Grafana's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

WIDTH, HEIGHT, A_ROW = 8, 8, 3  # of a panel, in Grafana's grid of 24 columns
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# What is shown is chosen by these; where a label is missing, as `cluster` mostly is, "All" finds its series too.
VARIABLES = {
    "cluster": "label_values(trifold_build_info, cluster)",
    "namespace": 'label_values(trifold_build_info{cluster=~"$cluster"}, namespace)',
    "model": 'label_values(trifold_model_info{cluster=~"$cluster", namespace=~"$namespace"}, model)',
}


@dataclass(frozen=True)
class Panel:
    """A graph of one or more queries; `legends` name their lines; from each threshold on it has that colour."""

    title: str
    unit: str
    queries: Sequence[str]
    legends: Sequence[str]
    description: str = ""
    thresholds: Sequence[tuple[str, float | None]] = ()
    kind: Literal["timeseries", "heatmap", "stat"] = "timeseries"


@dataclass(frozen=True)
class Dashboard:
    """Panels over one data source, for chosen clusters and namespaces; `by_model` adds the choice of models."""

    uid: str
    title: str
    panels: Sequence[Panel]
    by_model: bool = True


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana's JSON."""
    variables = [_variable(name, query) for name, query in VARIABLES.items() if dashboard.by_model or name != "model"]
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["trifold"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, *variables]},
        "panels": [_panel(panel, place) for place, panel in enumerate(dashboard.panels)],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": query,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def _panel(panel: Panel, place: int) -> dict[str, Any]:
    row, column = divmod(place, A_ROW)
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults["min"] = 0
    if panel.thresholds:
        steps = [{"color": color, "value": value} for color, value in panel.thresholds]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        if panel.kind == "timeseries":
            defaults["custom"] = {"thresholdsStyle": {"mode": "dashed"}}
        else:
            defaults["color"] = {"mode": "thresholds"}
    heatmap: dict[str, Any] = {}
    if panel.kind == "heatmap":
        heatmap = {"options": {"calculate": False, "yAxis": {"unit": panel.unit}, "color": {"scheme": "Oranges"}}}
    return {
        "id": place + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        **heatmap,
        "targets": [
            {
                "refId": "ABC"[index],
                "datasource": DATASOURCE,
                "expr": query,
                "legendFormat": legend,
                **({"format": "heatmap"} if panel.kind == "heatmap" else {}),
            }
            for index, (query, legend) in enumerate(zip(panel.queries, panel.legends, strict=True))
        ],
    }
