"""The recording and alert rules, as values; `make manifests` writes rules.yml and the PrometheusRule from them.

Every rule keeps the labels `cluster` and `namespace`, so that staging does not dilute production; where there are none,
as on one machine, they are empty and the same. Series that others have too (of Ray, HAProxy, Kubernetes, GPUs) count
only in namespaces in which Trifold runs, or has within the last hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from deploy.monitoring.objectives import BUDGETS, WINDOWS, Budget

RUNBOOKS = "https://example.com/trifold/runbooks.md"  # where runbooks.md is published; `--runbooks` sets another
SCOPE = "cluster, namespace"
SHARE = "{{ $value | humanizePercentage }}"
OURS = f"and on ({SCOPE}) group by ({SCOPE}) (last_over_time(trifold_build_info[1h]))"
# Of a pod with a GPU the exporter tells in `exported_namespace`, unless it is let overwrite the target's labels.
GPU = 'label_replace({}, "namespace", "$1", "exported_namespace", "(.+)")'
# What the device reports, not a program on it (NVIDIA's XID catalogue): ECC and rows, NVLink, off the bus, GSP.
HARDWARE_XIDS = "48|63|64|74|79|92|94|95|119|120"


@dataclass(frozen=True)
class Alert:
    """An alert: what it asks, for how long it must hold ("": not at all), and what it says."""

    name: str
    expr: str
    hold: str
    severity: Literal["critical", "warning"]
    summary: str
    window: str | None = None  # of a budget's alert


# Of requests that an application was chosen for: HAProxy's own answers to /-/healthz are none, nor what it says while
# there is no application yet (`default_backend`). What probes were told, by design, while a pod leaves, is taken off.
INGRESS_ANSWERS, OF_BACKENDS = "haproxy_backend_http_responses_total", 'proxy!~"stats|default_backend"'


def _failed(function: str, window: str) -> str:
    """Return how many requests HAProxy answered with 5xx, but for probes."""
    answered = f'{INGRESS_ANSWERS}{{{OF_BACKENDS}, code="5xx"}}[{window}]'
    probes = f"trifold_probes_failed_total[{window}]"
    told = f"sum by ({SCOPE}) ({function}({probes})) or 0 * sum by ({SCOPE}) ({function}({answered}))"
    return f"sum by ({SCOPE}) ({function}({answered})) - ({told})"


# Each replica has a series of its own, which begins with it at 1 and never increases, so the series are counted. Where
# a pod dies with its replica, as under KubeRay, each of them has another `instance`.
REPLICAS = f"{SCOPE}, application, deployment"
STARTS = (
    "(last_over_time(ray_serve_deployment_replica_starts_total[30m])"
    " unless ray_serve_deployment_replica_starts_total offset 30m)"
)
STARTED = f"count by ({REPLICAS}) {STARTS}"


def _sum(metric: str, window: str, by: str, selector: str = "") -> str:
    return f"sum by ({SCOPE}, {by}) (rate({metric}{selector}[{window}]))"


SERVICE = (
    # What no process of ours answers is counted by HAProxy alone, and anew whenever Ray restarts it, at every change of
    # replicas: what it answered since the last scrape may be missing.
    Alert(
        "TrifoldIngressFails",
        f"""
        {_failed("rate", "5m")} > 0.01 * sum by ({SCOPE}) (rate({INGRESS_ANSWERS}{{{OF_BACKENDS}}}[5m]))
        and {_failed("increase", "15m")} > 10 {OURS}
        """,
        "5m",
        "critical",
        "more than 1 % of all answers are 5xx ({{ $value | humanize }} a second)",
    ),
    Alert(
        "TrifoldQueueGrows",
        f"""
        sum by ({SCOPE}, model) (trifold_sequences_waiting) > 64
        and sum by ({SCOPE}, model) (deriv(trifold_sequences_waiting[10m])) > 0
        """,
        "5m",
        "warning",
        "{{ $labels.model }}: {{ $value }} sequences wait, and more come than are served",
    ),
    Alert(
        "TrifoldRejects",
        f"""
        {_sum("trifold_rejections_total", "5m", "model", '{reason="overloaded"}')}
          > 0.01 * {_sum("trifold_requests_total", "5m", "model")}
        and sum by ({SCOPE}, model) (increase(trifold_rejections_total{{reason="overloaded"}}[15m])) > 10
        """,
        "5m",
        "warning",
        "{{ $labels.model }}: more than 1 % of its requests are refused with 429 ({{ $value | humanize }} a second)",
    ),
    Alert(
        "TrifoldClientsLeave",
        f"""
        {_sum("trifold_cancellations_total", "15m", "model")} > 0.1 * {_sum("trifold_requests_total", "15m", "model")}
        and sum by ({SCOPE}, model) (increase(trifold_cancellations_total[15m])) > 10
        """,
        "15m",
        "warning",
        "{{ $labels.model }}: one client in ten leaves before its answer",
    ),
    # The first is each process's own word; the second is for one that can say nothing any more.
    Alert(
        "TrifoldEngineStuck",
        f"""
        max by ({SCOPE}, model, instance) (trifold_engine_stalled_seconds) > 30
        or (
          max by ({SCOPE}, model, instance) (time() - trifold_engine_last_step_timestamp_seconds) > 30
          and sum by ({SCOPE}, model, instance) (trifold_sequences_running) > 0
          unless sum by ({SCOPE}, model, instance) (increase(trifold_step_seconds_count[1m])) > 0
        )
        """,
        "1m",
        "critical",
        "{{ $labels.model }} at {{ $labels.instance }} has ended no step for {{ $value | humanizeDuration }}",
    ),
    # Without the KV cache, which grows with every morning's load and shrinks again.
    Alert(
        "TrifoldMemoryGrows",
        """
        trifold_process_heap_bytes / trifold_replicas
          > 1.5 * (trifold_process_heap_bytes offset 6h / trifold_replicas offset 6h)
          > 256e6 + (trifold_process_heap_bytes offset 6h / trifold_replicas offset 6h)
        """,
        "30m",
        "warning",
        "{{ $labels.model }} at {{ $labels.instance }} has half as much on its heap again per replica as six hours ago",
    ),
    Alert(
        "TrifoldNoMetrics",
        f"""
        group by ({SCOPE}) (last_over_time(trifold_build_info[6h])) unless group by ({SCOPE}) (trifold_build_info)
        or absent(last_over_time(trifold_build_info[6h]))
        """,
        "5m",
        "critical",
        "no process of Trifold tells how it is doing",
    ),
    Alert(
        "TrifoldTargetDown",
        f'up{{job=~"(.*/)?trifold(-.*)?"}} == 0 {OURS}',
        "10m",  # a pod without replicas lives on for five
        "warning",
        "{{ $labels.instance }} does not answer Prometheus",
    ),
)

RAY = (
    Alert(
        "TrifoldModelNotRunning",
        f"max by ({SCOPE}, application) (ray_serve_application_status) != 6 {OURS}",
        "10m",
        "critical",
        "{{ $labels.application }} has not been running for ten minutes (status {{ $value }}, 6 is running)",
    ),
    # Each pod of plain is a Ray of its own, and an upgrade has two: what runs must not hide what does not.
    Alert(
        "TrifoldModelNotRunningSomewhere",
        f"max by ({SCOPE}, instance, application) (ray_serve_application_status) != 6 {OURS}",
        "20m",  # a first download of models takes minutes
        "warning",
        "{{ $labels.application }} has not been running at {{ $labels.instance }} for twenty minutes "
        "(status {{ $value }}, 6 is running)",
    ),
    Alert(
        "TrifoldRayGone",
        f"""
        group by ({SCOPE}) (last_over_time(ray_serve_application_status[6h]))
        unless group by ({SCOPE}) (ray_serve_application_status) {OURS}
        """,
        "5m",
        "critical",
        "Serve's controller tells nothing; the head or the controller is gone",
    ),
    # An update starts as many as there are, and its rollback as many again. Of those that never were healthy Serve may
    # have told nothing: then ten are too many. So are ten in one pod, however many there are elsewhere: an
    # update and its rollback start more there only if it has more than five, as of those that share a GPU.
    Alert(
        "TrifoldReplicasFlap",
        f"""
        (
          {STARTED} > 10
          unless {STARTED} <= 2 * max_over_time((sum by ({REPLICAS}) (ray_serve_deployment_replica_healthy))[30m:1m])
          or max by ({REPLICAS}) (count by ({REPLICAS}, instance) {STARTS}) > 10
          unless {STARTED} <= max_over_time((sum by ({REPLICAS}) (ray_serve_deployment_replica_healthy))[30m:1m])
        ) {OURS}
        """,
        "",
        "warning",
        "{{ $labels.application }}: {{ $value | humanize }} replicas started in half an hour",
    ),
    # Not by Serve's gauge of the replicas that it aims at: it is set when they change, and Ray forgets it within half a
    # minute.
    Alert(
        "TrifoldAutoscalerSaturated",
        f"""
        sum by ({SCOPE}, model) (trifold_sequences_waiting) > 64 and on ({SCOPE}, model) (
          group by ({SCOPE}, model, application) (trifold_model_info)
          and on ({SCOPE}, application)
          changes((sum by ({SCOPE}, application) (ray_serve_deployment_replica_healthy))[15m:1m]) == 0
        )
        """,
        "15m",
        "warning",
        "{{ $labels.model }}: {{ $value }} sequences wait, and for a quarter of an hour no replica came",
    ),
    Alert(
        "TrifoldReplicasUnhealthy",
        f"max by ({SCOPE}, application, deployment) (ray_serve_deployment_status) < 3 {OURS}",
        "2m",
        "critical",
        "{{ $labels.application }}: replicas fail to start or fail their health checks (status {{ $value }})",
    ),
    # Ray's control store has been seen to grow until the head dies.
    Alert(
        "TrifoldHeadMemoryGrows",
        f'predict_linear(ray_component_rss_mb{{Component="gcs"}}[6h], 24 * 3600) > 2000 {OURS}',
        "1h",
        "warning",
        "at this rate Ray's control store needs {{ $value | humanize }} MB in a day",
    ),
)

ENDED_BY_RAY = "ray_memory_manager_worker_eviction_total"

PODS = (  # series of kube-state-metrics and the kubelet, and of Ray where it does the kernel's work
    Alert(
        "TrifoldMemoryNearLimit",
        f"""
        max by ({SCOPE}, pod, container) (container_memory_working_set_bytes{{container!=""}})
          / on ({SCOPE}, pod, container)
            max by ({SCOPE}, pod, container) (kube_pod_container_resource_limits{{resource="memory"}}) > 0.9 {OURS}
        """,
        "10m",
        "warning",
        "{{ $labels.container }} of {{ $labels.pod }} uses {{ $value | humanizePercentage }} of its memory limit",
    ),
    # The kernel's count goes with its container, and a pod that is not started again has no last reason: three ways to
    # see it, none of which is sure. The last is Ray's, which ends workers before the kernel has to; its series begin at
    # 1 with the first that is ended, of which `increase` sees nothing.
    Alert(
        "TrifoldOutOfMemory",
        f"""
        (
          sum by ({SCOPE}, pod, container) (increase(container_oom_events_total{{container!=""}}[15m])) > 0
          or max by ({SCOPE}, pod, container) (
            kube_pod_container_status_last_terminated_reason{{reason="OOMKilled"}}
          ) > 0 and sum by ({SCOPE}, pod, container) (increase(kube_pod_container_status_restarts_total[15m])) > 0
          or max by ({SCOPE}, pod, container) (
            max_over_time(kube_pod_container_status_terminated_reason{{reason="OOMKilled"}}[15m])
          ) > 0
          or sum by ({SCOPE}, pod, container) (increase({ENDED_BY_RAY}[15m])) > 0
        ) {OURS}
        """,
        "",
        "critical",
        "{{ $labels.container }} of {{ $labels.pod }}, or a replica in it, was killed for its memory",
    ),
    # The head is away as long as its Redis is: an hour later its workers end, too.
    Alert(
        "TrifoldRedisNotReady",
        f'max by ({SCOPE}) (kube_statefulset_status_replicas_ready{{statefulset="trifold-redis"}}) == 0 {OURS}',
        "2m",
        "critical",
        "Redis is not ready, and without it the head cannot run",
    ),
    Alert(
        "TrifoldPodPending",
        f'max by ({SCOPE}, pod) (kube_pod_status_phase{{phase="Pending"}}) == 1 {OURS}',
        "15m",  # a node with a GPU, its driver and the image take minutes
        "warning",
        "{{ $labels.pod }} has been waiting for a node or its image for a quarter of an hour",
    ),
    Alert(
        "TrifoldCpuThrottled",
        f"""
        sum by ({SCOPE}, pod, container) (rate(container_cpu_cfs_throttled_periods_total{{container!=""}}[5m]))
          / sum by ({SCOPE}, pod, container) (rate(container_cpu_cfs_periods_total{{container!=""}}[5m])) > 0.25 {OURS}
        """,
        "15m",
        "warning",
        "{{ $labels.container }} of {{ $labels.pod }} is stopped in {{ $value | humanizePercentage }} of CPU periods",
    ),
)

GPUS = (  # series of NVIDIA's DCGM exporter
    Alert(
        "TrifoldGpuFault",  # over the exporter's own window, five minutes by default
        GPU.format(f'DCGM_EXP_XID_ERRORS_COUNT{{xid=~"{HARDWARE_XIDS}"}}') + f" > 0 {OURS}",
        "",
        "critical",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports XID {{ $labels.xid }}",
    ),
    Alert(
        "TrifoldGpuMemoryFull",
        GPU.format("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)") + f" > 0.95 {OURS}",
        "10m",
        "warning",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} has {{ $value | humanizePercentage }} of its memory in use",
    ),
    Alert(
        "TrifoldGpuHot",
        GPU.format("DCGM_FI_DEV_GPU_TEMP") + f" > 85 {OURS}",
        "5m",
        "warning",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} has {{ $value }} °C and slows down",
    ),
)


def rules(runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """Return the rules as Prometheus reads them, the runbook of each alert at an address below `runbooks`."""
    budgets = []  # first what is recorded, then what is told of it: a group is evaluated in its order
    for budget in BUDGETS:
        budgets += [{"record": name, "expr": _tidy(expr)} for name, expr in budget.recorded(SCOPE)]
        budgets += [_alert(alert, runbooks) for alert in _budget_alerts(budget)]
    groups = {"trifold-service": SERVICE, "trifold-ray": RAY, "trifold-pods": PODS, "trifold-gpu": GPUS}
    return {
        "groups": [
            {"name": "trifold-budgets", "interval": "30s", "rules": budgets},
            *({"name": name, "rules": [_alert(a, runbooks) for a in alerts]} for name, alerts in groups.items()),
        ]
    }


def _budget_alerts(budget: Budget) -> Iterator[Alert]:
    for window in WINDOWS:
        yield Alert(
            f"{budget.name}{'Fast' if window.severity == 'critical' else 'Slowly'}",
            budget.burning(window),
            window.hold,
            window.severity,
            f"{{{{ $labels.model }}}}: {SHARE} of the requests of {window.long} {budget.what}",
            window.long,
        )


def _alert(alert: Alert, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": _tidy(alert.expr),
        **({"for": alert.hold} if alert.hold else {}),
        "labels": {"severity": alert.severity, **({"window": alert.window} if alert.window else {})},
        "annotations": {"summary": alert.summary, "runbook_url": f"{runbooks}#{alert.name.lower()}"},
    }


def _tidy(expr: str) -> str:
    """Return a query in one line, as it is easiest to paste into Prometheus."""
    return " ".join(expr.split())
