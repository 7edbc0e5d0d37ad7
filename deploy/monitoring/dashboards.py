"""The Grafana dashboards, as values; `make manifests` writes them as Grafana reads them."""

from __future__ import annotations

from deploy.monitoring.grafana_json import Dashboard, Panel
from deploy.monitoring.objectives import BUDGETS, Budget
from deploy.monitoring.rules import INGRESS_ANSWERS, OF_BACKENDS

OF_CLUSTER = 'cluster=~"$cluster"'
GPU_USED = f"DCGM_FI_DEV_FB_USED{{{OF_CLUSTER}}}"
HERE = 'cluster=~"$cluster", namespace=~"$namespace"'
OF_MODEL = f'{HERE}, model=~"$model"'


def _legend(by: str) -> str:
    """Return the name of a line for each value of some labels, as Grafana fills it in."""
    return " ".join(f"{{{{{label}}}}}" for label in by.split(", "))


def _quantiles(metric: str, title: str, unit: str = "s", by: str = "model", description: str = "") -> Panel:
    """Return p50, p95 and p99 of a histogram."""
    rate = f"sum by ({by}, le) (rate({metric}_bucket{{{OF_MODEL}}}[$__rate_interval]))"
    return Panel(
        title,
        unit,
        [f"histogram_quantile({quantile}, {rate})" for quantile in (0.5, 0.95, 0.99)],
        [f"{_legend(by)} {name}" for name in ("p50", "p95", "p99")],
        description,
    )


def _mean(metric: str, title: str, unit: str = "short", description: str = "") -> Panel:
    """Return a histogram's mean, by phase."""
    chosen = f"{{{OF_MODEL}}}[$__rate_interval]"
    query = f"sum by (model, phase) (rate({metric}_sum{chosen})) / sum by (model, phase) (rate({metric}_count{chosen}))"
    return Panel(title, unit, [query], ["{{model}} {{phase}}"], description)


def _rate(metric: str, title: str, unit: str, by: str = "model") -> Panel:
    query = f"sum by ({by}) (rate({metric}{{{OF_MODEL}}}[$__rate_interval]))"
    return Panel(title, unit, [query], [_legend(by)])


def _share(part: str, whole: str) -> str:
    """Return the query of what share of a counter another is."""
    rates = (f"sum by (model) (rate({metric}{{{OF_MODEL}}}[$__rate_interval]))" for metric in (part, whole))
    return " / ".join(rates)


def _gauge(metric: str, title: str, unit: str = "short", by: str = "model", selector: str = OF_MODEL) -> Panel:
    query = f"sum by ({by}) ({metric}{{{selector}}})"
    return Panel(title, unit, [query], [_legend(by)])


def _heatmap(metric: str, title: str) -> Panel:
    """Return how many observations each of a histogram's buckets had over time."""
    query = f"sum by (le) (increase({metric}_bucket{{{OF_MODEL}}}[$__rate_interval]))"
    return Panel(title, "s", [query], ["{{le}}"], kind="heatmap")


def _budget(budget: Budget) -> tuple[Panel, Panel, Panel]:
    """Return what is left of three days' share of a budget, how fast it burns, and the share that broke the promise."""
    ratio = f"model:{budget.record}:ratio_rate"
    left = Panel(
        f"Budget left: {budget.title}",
        "percentunit",
        [f"1 - {ratio}3d{{{OF_MODEL}}} / {budget.share:g}"],
        ["{{namespace}} {{model}}"],
        f"Of three days; {budget.share:.1%} of the requests may be so.",
        thresholds=(("red", None), ("orange", 0.0), ("green", 0.25)),
        kind="stat",
    )
    burn = Panel(
        f"Burn rate: {budget.title}",
        "short",
        [f"{ratio}{window}{{{OF_MODEL}}} / {budget.share:g}" for window in ("1h", "6h")],
        ["{{namespace}} {{model}} 1h", "{{namespace}} {{model}} 6h"],
        "At 1 the budget lasts for its 30 days; above 14.4 (1h) or 6 (6h) somebody is woken.",
        thresholds=(("green", None), ("orange", 1.0), ("red", 14.4)),
    )
    share = Panel(
        f"Requests that {budget.what}",
        "percentunit",
        [f"{ratio}5m{{{OF_MODEL}}}"],
        ["{{namespace}} {{model}}"],
        "Share of the last five minutes.",
        thresholds=(("green", None), ("red", budget.share)),
    )
    return left, burn, share


DASHBOARDS = (
    Dashboard(
        "trifold-service",
        "Trifold: service",
        (
            *(panel for budget in BUDGETS for panel in _budget(budget)),
            _rate("trifold_requests_total", "Requests a second", "reqps", "model, code"),
            _quantiles("trifold_request_seconds", "Request time", by="model, task"),
            _quantiles("trifold_time_to_first_token_seconds", "Time to first token"),
            _quantiles("trifold_inter_token_seconds", "Time between tokens"),
            _rate("trifold_rejections_total", "Refused a second", "reqps", "model, reason"),
            _rate("trifold_generated_tokens_total", "Generated tokens a second", "short"),
            _rate("trifold_prompt_tokens_total", "Prompt tokens a second", "short"),
            _rate("trifold_cancellations_total", "Clients that left, a second", "reqps"),
            _gauge("trifold_requests_in_progress", "Requests in progress", by="route", selector=HERE),
            _quantiles("trifold_time_per_output_token_seconds", "Time per output token"),
            _rate("trifold_finished_sequences_total", "Ends a second", "short", "model, reason"),
            _quantiles("trifold_prompt_length_tokens", "Prompt lengths", "short"),
            _quantiles("trifold_output_length_tokens", "Output lengths", "short"),
            _heatmap("trifold_request_seconds", "Request times"),
            _heatmap("trifold_time_to_first_token_seconds", "Times to first token"),
            _heatmap("trifold_queue_seconds", "Times in the queue"),
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
                    f"sum by (model) (trifold_kv_slots_used{{{OF_MODEL}}})"
                    f" / sum by (model) (trifold_kv_slots{{{OF_MODEL}}})"
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
                [_share("trifold_prefix_cache_hits_total", "trifold_prefix_cache_queries_total")],
                ["{{model}}"],
                "Share of the prompt tokens that were known.",
            ),
            Panel(
                "Drafts",
                "percentunit",
                [
                    _share("trifold_accepted_draft_tokens_total", "trifold_draft_tokens_total"),
                    _share("trifold_accepted_draft_tokens_total", "trifold_generated_tokens_total"),
                ],
                ["{{model}} came", "{{model}} of all tokens"],
                "Share of the drafted tokens that came, and of all tokens those that came by a draft.",
            ),
            Panel(
                "Since the last step",
                "s",
                [f"time() - trifold_engine_last_step_timestamp_seconds{{{OF_MODEL}}}"],
                ["{{model}} {{instance}}"],
            ),
            Panel(
                "Work without a step's end",
                "s",
                [f"max by (model, instance) (trifold_engine_stalled_seconds{{{OF_MODEL}}})"],
                ["{{model}} {{instance}}"],
                thresholds=(("green", None), ("red", 30.0)),
            ),
            _gauge("trifold_kv_bytes", "Memory of the KV cache", "bytes", "model, instance"),
            _gauge("trifold_process_resident_memory_bytes", "Memory", "bytes", "model, instance"),
            _gauge("trifold_process_heap_bytes", "Memory allocated with malloc", "bytes", "model, instance"),
            Panel(
                "Builds",
                "short",
                [f"sum by (version, onnxruntime, ray, python) (trifold_build_info{{{HERE}}})"],
                ["{{version}}: ONNX Runtime {{onnxruntime}}, Ray {{ray}}, Python {{python}}"],
            ),
            _heatmap("trifold_step_seconds", "Steps"),
            Panel(
                "Models",
                "short",
                [f"sum by (model, task, precision, family) (trifold_model_info{{{OF_MODEL}}})"],
                ["{{model}}: {{task}}, {{precision}}, {{family}}"],
            ),
            Panel("Loading", "s", [f"max by (model) (trifold_model_load_seconds{{{OF_MODEL}}})"], ["{{model}}"]),
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
                    f"sum by (application) (ray_serve_deployment_replica_healthy{{{HERE}}})",
                    f"max by (application) (ray_serve_autoscaling_desired_replicas{{{HERE}}})",
                ],
                ["{{application}} healthy", "{{application}} desired"],
                "Desired is what the load asks for, before `min_replicas` and `max_replicas`.",
            ),
            Panel(
                "Applications",
                "short",
                [f"max by (application) (ray_serve_application_status{{{HERE}}})"],
                ["{{application}}"],
                "1 deploy failed, 2 unhealthy, 3 not started, 4 deleting, 5 deploying, 6 running.",
            ),
            Panel(
                "Replicas started within an hour",
                "short",
                [
                    f"count by (application) (last_over_time(ray_serve_deployment_replica_starts_total{{{HERE}}}[1h])"
                    f" unless ray_serve_deployment_replica_starts_total{{{HERE}}} offset 1h)"
                ],
                ["{{application}}"],
            ),
            Panel(
                "Answers of the ingress",
                "reqps",
                [f"sum by (code) (rate({INGRESS_ANSWERS}{{{HERE}, {OF_BACKENDS}}}[$__rate_interval]))"],
                ["{{code}}"],
                "What HAProxy answered, also where no replica could; it counts anew whenever replicas change.",
            ),
            Panel("Nodes", "short", [f"sum by (node_type) (ray_cluster_active_nodes{{{HERE}}})"], ["{{node_type}}"]),
            Panel("CPU of a node", "percent", [f"ray_node_cpu_utilization{{{HERE}}}"], ["{{instance}}"]),
            Panel(
                "Memory of a node",
                "percentunit",
                [f"ray_node_mem_used{{{HERE}}} / ray_node_mem_total{{{HERE}}}"],
                ["{{instance}}"],
            ),
            Panel(
                "Memory of Ray's parts",
                "decmbytes",
                [f"sum by (Component) (ray_component_rss_mb{{{HERE}}})"],
                ["{{Component}}"],
            ),
            Panel("GPU use", "percent", [f"DCGM_FI_DEV_GPU_UTIL{{{OF_CLUSTER}}}"], ["{{Hostname}} {{gpu}}"]),
            Panel(
                "GPU memory",
                "percentunit",
                [f"{GPU_USED} / ({GPU_USED} + DCGM_FI_DEV_FB_FREE{{{OF_CLUSTER}}})"],
                ["{{Hostname}} {{gpu}}"],
            ),
        ),
        by_model=False,
    ),
)
