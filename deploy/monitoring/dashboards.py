"""The Grafana dashboards, as values; `make manifests` writes them as Grafana reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, A_ROW = 8, 8, 3  # of a panel, in Grafana's grid of 24 columns
INGRESS_ANSWERS = 'haproxy_frontend_http_responses_total{proxy="http_frontend"}'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLES = ("cluster", "namespace", "model")


@dataclass(frozen=True)
class Panel:
    """A graph of one or more queries; `legends` name their lines."""

    title: str
    unit: str
    queries: Sequence[str]
    legends: Sequence[str]
    description: str = ""


@dataclass(frozen=True)
class Dashboard:
    """Panels over one data source; `by_model` adds the choice of models to it."""

    uid: str
    title: str
    panels: Sequence[Panel]
    by_model: bool = True


def _quantiles(metric: str, title: str, unit: str = "s", by: str = "model", description: str = "") -> Panel:
    """Return p50, p95 and p99 of a histogram."""
    rate = f'sum by ({by}, le) (rate({metric}_bucket{{model=~"$model"}}[$__rate_interval]))'
    labels = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return Panel(
        title,
        unit,
        [f"histogram_quantile({quantile}, {rate})" for quantile in (0.5, 0.95, 0.99)],
        [f"{labels} {name}" for name in ("p50", "p95", "p99")],
        description,
    )


def _mean(metric: str, title: str, unit: str = "short", description: str = "") -> Panel:
    """Return a histogram's mean, by phase."""
    chosen = '{model=~"$model"}[$__rate_interval]'
    query = f"sum by (model, phase) (rate({metric}_sum{chosen})) / sum by (model, phase) (rate({metric}_count{chosen}))"
    return Panel(title, unit, [query], ["{{model}} {{phase}}"], description)


def _rate(metric: str, title: str, unit: str, by: str = "model") -> Panel:
    query = f'sum by ({by}) (rate({metric}{{model=~"$model"}}[$__rate_interval]))'
    return Panel(title, unit, [query], [" ".join(f"{{{{{label}}}}}" for label in by.split(", "))])


def _gauge(metric: str, title: str, unit: str = "short", by: str = "model") -> Panel:
    query = f'sum by ({by}) ({metric}{{model=~"$model"}})'
    return Panel(title, unit, [query], [" ".join(f"{{{{{label}}}}}" for label in by.split(", "))])


DASHBOARDS = (
    Dashboard(
        "trifold-service",
        "Trifold: service",
        (
            _rate("trifold_requests_total", "Requests a second", "reqps", "model, code"),
            _quantiles("trifold_request_seconds", "Request time", by="model, task"),
            Panel(
                "Requests that failed",
                "percentunit",
                ['model:trifold_request_errors:ratio_rate5m{model=~"$model"}'],
                ["{{model}}"],
                "Share answered with 5xx; a month's budget is 0.1 %.",
            ),
            _quantiles("trifold_time_to_first_token_seconds", "Time to first token"),
            _quantiles("trifold_inter_token_seconds", "Time between tokens"),
            _rate("trifold_rejections_total", "Refused a second", "reqps", "model, reason"),
            _rate("trifold_generated_tokens_total", "Generated tokens a second", "short"),
            _rate("trifold_prompt_tokens_total", "Prompt tokens a second", "short"),
            _rate("trifold_cancellations_total", "Clients that left, a second", "reqps"),
        ),
    ),
    Dashboard(
        "trifold-engine",
        "Trifold: engine",
        (
            _gauge("trifold_sequences_running", "Sequences running"),
            _gauge("trifold_sequences_waiting", "Sequences waiting"),
            _gauge("trifold_queued_tokens", "Queued tokens"),
            Panel(
                "KV cache",
                "percentunit",
                [
                    'sum by (model) (trifold_kv_slots_used{model=~"$model"})'
                    ' / sum by (model) (trifold_kv_slots{model=~"$model"})'
                ],
                ["{{model}}"],
                "Share of the slots held or promised.",
            ),
            _quantiles("trifold_queue_seconds", "Time in the queue"),
            _quantiles("trifold_step_seconds", "Step", by="model, phase"),
            _mean("trifold_batch_rows", "Rows of a step"),
            _mean("trifold_batch_tokens", "Tokens of a step"),
            _mean(
                "trifold_padding_ratio", "Padding", "percentunit", "Share of the computed tokens that nobody asked for."
            ),
            Panel(
                "Prefix cache",
                "percentunit",
                [
                    'sum by (model) (rate(trifold_prefix_cache_hits_total{model=~"$model"}[$__rate_interval]))'
                    ' / sum by (model) (rate(trifold_prefix_cache_queries_total{model=~"$model"}[$__rate_interval]))'
                ],
                ["{{model}}"],
                "Share of the prompt tokens that were known.",
            ),
            Panel(
                "Since the last step",
                "s",
                ['time() - trifold_engine_last_step_timestamp_seconds{model=~"$model"}'],
                ["{{model}} {{instance}}"],
            ),
            _gauge("trifold_process_resident_memory_bytes", "Memory", "bytes", "model, instance"),
            Panel(
                "Models",
                "short",
                ['sum by (model, task, precision, family) (trifold_model_info{model=~"$model"})'],
                ["{{model}}: {{task}}, {{precision}}, {{family}}"],
            ),
            Panel("Loading", "s", ['max by (model) (trifold_model_load_seconds{model=~"$model"})'], ["{{model}}"]),
        ),
    ),
    Dashboard(
        "trifold-ray",
        "Trifold: Ray and GPUs",
        (
            Panel(
                "Replicas",
                "short",
                [
                    "sum by (application) (ray_serve_deployment_replica_healthy)",
                    "max by (application) (ray_serve_autoscaling_target_replicas)",
                ],
                ["{{application}} healthy", "{{application}} target"],
            ),
            Panel(
                "Applications",
                "short",
                ["max by (application) (ray_serve_application_status)"],
                ["{{application}}"],
                "1 deploy failed, 2 unhealthy, 3 not started, 4 deleting, 5 deploying, 6 running.",
            ),
            Panel(
                "Replicas that ran within an hour",
                "short",
                ["count by (application) (last_over_time(ray_serve_deployment_replica_starts_total[1h]))"],
                ["{{application}}"],
            ),
            Panel(
                "Answers of the ingress",
                "reqps",
                [f"sum by (code) (rate({INGRESS_ANSWERS}[$__rate_interval]))"],
                ["{{code}}"],
                "What HAProxy answered, also where no replica could.",
            ),
            Panel("Nodes", "short", ["max(ray_cluster_active_nodes)"], ["nodes"]),
            Panel("CPU of a node", "percent", ["ray_node_cpu_utilization"], ["{{instance}}"]),
            Panel("Memory of a node", "percentunit", ["ray_node_mem_used / ray_node_mem_total"], ["{{instance}}"]),
            Panel(
                "Memory of Ray's parts", "decmbytes", ["sum by (Component) (ray_component_rss_mb)"], ["{{Component}}"]
            ),
            Panel("GPU use", "percent", ["DCGM_FI_DEV_GPU_UTIL"], ["{{Hostname}} {{gpu}}"]),
            Panel(
                "GPU memory",
                "percentunit",
                ["DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)"],
                ["{{Hostname}} {{gpu}}"],
            ),
        ),
        by_model=False,
    ),
)


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana's JSON."""
    variables: list[dict[str, Any]] = [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
    if dashboard.by_model:
        variables.append(
            {
                "name": "model",
                "type": "query",
                "datasource": DATASOURCE,
                "query": "label_values(trifold_model_info, model)",
                "includeAll": True,
                "multi": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
                "refresh": 2,
            }
        )
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["trifold"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": [_panel(panel, place) for place, panel in enumerate(dashboard.panels)],
    }


def _panel(panel: Panel, place: int) -> dict[str, Any]:
    row, column = divmod(place, A_ROW)
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": "ABC"[index], "datasource": DATASOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(zip(panel.queries, panel.legends, strict=True))
        ],
    }
