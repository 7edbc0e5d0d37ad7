"""For each alert, series with which it fires, and their values with which it does not, in promtool's notation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """An alert's series, with a value each `every`; `labels` and `summary` are those of it firing.

    A series has its values where the alert fires and where it is silent (None: it is not there), or the same for both.
    """

    alert: str
    at: str  # when it is looked at
    series: Mapping[str, str | tuple[str | None, str | None]]  # by metric with labels
    labels: dict[str, str]
    summary: str
    every: str = "1m"
    windows: tuple[str, ...] = ()  # of a budget, for which the alert fires; the summary names each
    own: bool = True  # of series that only Trifold has; others count in its namespaces alone

    @property
    def firing(self) -> dict[str, str]:
        """The series with which it fires."""
        return self._series(0)

    @property
    def silent(self) -> dict[str, str]:
        """The series with which it does not."""
        return self._series(1)

    def _series(self, place: int) -> dict[str, str]:
        given = {name: each if isinstance(each, str) else each[place] for name, each in self.series.items()}
        return {name: values for name, values in given.items() if values is not None}


MODEL = {"model": "stories"}
OK, BAD = 'trifold_requests_total{model="stories",code="200"}', 'trifold_requests_total{model="stories",code="504"}'
FIRST = 'trifold_time_to_first_token_seconds_{}{{model="stories"{}}}'
ALL_FIRST, SOON = FIRST.format("count", ""), FIRST.format("bucket", ',le="2.0"')
ENCODED = 'trifold_request_seconds_{}{{model="stories",task="classify"{}}}'
ALL_ENCODED, ENCODED_SOON = ENCODED.format("count", ""), ENCODED.format("bucket", ',le="1.0"')
STARTS = 'ray_serve_deployment_replica_starts_total{{application="stories",deployment="model",replica="{}"{}}}'
WORKER = '{pod="w-1",container="ray-worker"'
POD = {"pod": "w-1", "container": "ray-worker"}
INGRESS = 'haproxy_backend_http_responses_total{{proxy="http-gateway",code="{}"}}'
GPU, GPU_LABELS = '{gpu="0",Hostname="node-1"', {"gpu": "0", "Hostname": "node-1"}
AT_A = {"model": "stories", "instance": "a"}
STEP, SAID = 'trifold_step_seconds_count{model="stories",instance="a"}', '{model="stories",instance="a"}'
WAITING = 'trifold_sequences_waiting{model="stories",instance="a"}'
HEALTHY = 'ray_serve_deployment_replica_healthy{application="stories",deployment="model",replica="%s"'
SHARED = HEALTHY.replace("stories", "small") + "}"  # of several models
FLAPPING = {"application": "stories", "deployment": "model"}

CASES = (
    Case(
        "TrifoldErrorBudgetBurnsFast",
        "70m",
        {OK: ("0+98x80", "0+0x80"), BAD: ("0+2x80", "0x30 1x50")},  # silent: all failed, but it was one request
        MODEL,
        "stories: 2% of the requests of {window} failed",
        windows=("1h", "6h"),
    ),
    Case(
        "TrifoldErrorBudgetBurnsFast",
        "400m",
        {OK: ("0+990x42", "0+9990x42"), BAD: "0+10x42"},
        MODEL,
        "stories: 1% of the requests of {window} failed",
        windows=("6h",),
        every="10m",
    ),
    Case(
        "TrifoldErrorBudgetBurnsSlowly",
        "1600m",
        {OK: "0+996x85", BAD: ("0+4x85", "0+4x58 232x27")},  # silent: over for hours
        MODEL,
        "stories: 0.4% of the requests of {window} failed",
        windows=("1d", "3d"),
        every="20m",
    ),
    Case(
        "TrifoldErrorBudgetBurnsSlowly",
        "4600m",
        {OK: ("0+998x240", "0+9995x240"), BAD: ("0+2x240", "0+5x240")},
        MODEL,
        "stories: 0.2% of the requests of {window} failed",
        windows=("3d",),
        every="20m",
    ),
    Case(
        "TrifoldLatencyBudgetBurnsFast",
        "70m",
        {ALL_FIRST: "0+100x80", SOON: ("0+80x80", "0+95x80")},
        MODEL,
        "stories: 20% of the requests of {window} were late",
        windows=("1h", "6h"),
    ),
    Case(
        "TrifoldLatencyBudgetBurnsSlowly",
        "1600m",
        {ALL_ENCODED: "0+100x85", ENCODED_SOON: ("0+96x85", "0+100x85"), ALL_FIRST: "0x85", SOON: "0x85"},
        MODEL,
        "stories: 4% of the requests of {window} were late",
        windows=("1d", "3d"),
        every="20m",
    ),
    Case(
        "TrifoldIngressFails",
        "15m",
        {INGRESS.format("2xx"): ("0+90x20", "0+9990x20"), INGRESS.format("5xx"): "0+10x20"},
        {},
        "more than 1 % of all answers are 5xx (166.7m a second)",
        own=False,
    ),
    Case(  # a rolling update: as many as probes were told while pods left
        "TrifoldIngressFails",
        "15m",
        {
            INGRESS.format("2xx"): "0+90x20",
            INGRESS.format("5xx"): "0+10x20",
            'trifold_probes_failed_total{instance="a"}': ("0x20", "0+10x20"),
        },
        {},
        "more than 1 % of all answers are 5xx (166.7m a second)",
        own=False,
    ),
    Case(
        "TrifoldQueueGrows",
        "20m",
        {WAITING: ("0+20x30", "400-10x30")},
        MODEL,
        "stories: 400 sequences wait, and more come than are served",
    ),
    Case(
        "TrifoldRejects",
        "30m",
        {'trifold_rejections_total{model="stories",reason="overloaded"}': ("0+6x40", "0x20 1x20"), OK: "0+12x40"},
        MODEL,
        "stories: more than 1 % of its requests are refused with 429 (100m a second)",
    ),
    Case(
        "TrifoldClientsLeave",
        "45m",
        {'trifold_cancellations_total{model="stories"}': ("0+20x60", "0+5x60"), OK: "0+100x60"},
        MODEL,
        "stories: one client in ten leaves before its answer",
    ),
    Case(  # the process itself says so, also of a first step
        "TrifoldEngineStuck",
        "10m",
        {f"trifold_engine_stalled_seconds{SAID}": ("0+60x20", "20x20")},
        AT_A,
        "stories at a has ended no step for 10m 0s",
    ),
    Case(  # it was stopped, and can say nothing
        "TrifoldEngineStuck",
        "10m",
        {
            f"trifold_engine_last_step_timestamp_seconds{SAID}": "300x20",
            STEP: ("500x20", "0+9000x20"),  # silent: another replica steps
            f"trifold_sequences_running{SAID}": "4x20",
            f"trifold_engine_stalled_seconds{SAID}": "0x20",
        },
        AT_A,
        "stories at a has ended no step for 5m 0s",
    ),
    Case(
        "TrifoldMemoryGrows",
        "420m",
        {
            f"trifold_process_heap_bytes{SAID}": ("400e6+1e7x43", "400e6x20 800e6x22"),
            f"trifold_replicas{SAID}": ("1x43", "1x20 2x22"),
        },
        AT_A,
        "stories at a has half as much on its heap again per replica as six hours ago",
        every="10m",
    ),
    Case(  # silent: by half, as after a first load, and less than 256 MB
        "TrifoldMemoryGrows",
        "420m",
        {
            f"trifold_process_heap_bytes{SAID}": ("400e6+1e7x43", "90e6x20 180e6x22"),
            f"trifold_replicas{SAID}": "1x43",
        },
        AT_A,
        "stories at a has half as much on its heap again per replica as six hours ago",
        every="10m",
    ),
    Case(
        "TrifoldNoMetrics",
        "20m",
        {'trifold_build_info{version="1"}': ("1x5 stale", "1x30")},
        {},
        "no process of Trifold tells how it is doing",
    ),
    Case(
        "TrifoldTargetDown",
        "15m",
        {'up{job="trifold-ray",instance="a"}': ("0x20", "0x8 1x12")},
        {"job": "trifold-ray", "instance": "a"},
        "a does not answer Prometheus",
        own=False,
    ),
    Case(
        "TrifoldModelNotRunning",
        "20m",
        {'ray_serve_application_status{application="stories"}': ("2x30", "5x5 6x25")},
        {"application": "stories"},
        "stories has not been running for ten minutes (status 2, 6 is running)",
        own=False,
    ),
    Case(
        "TrifoldModelNotRunningSomewhere",
        "30m",
        {
            'ray_serve_application_status{application="stories",instance="a"}': "6x40",
            'ray_serve_application_status{application="stories",instance="b"}': ("2x40", "2x15 6x25"),
        },
        {"application": "stories", "instance": "b"},
        "stories has not been running at b for twenty minutes (status 2, 6 is running)",
        own=False,
    ),
    Case(
        "TrifoldRayGone",
        "30m",
        {'ray_serve_application_status{application="stories"}': ("6x10 stale", "6x40")},
        {},
        "Serve's controller tells nothing; the head or the controller is gone",
        own=False,
    ),
    Case(  # one pod after the other dies with its replica; silent: an update, its rollback, and then fewer replicas
        "TrifoldReplicasFlap",
        "40m",
        {
            STARTS.format(n, f',instance="pod-{n}"'): (f"_x{14 + 2 * n} 1x2 stale", f"_x{14 + n} 1x9 stale")
            for n in range(12)
        }
        | {f'{HEALTHY % n},instance="head"}}': ("1x60" if n < 2 else None, "1x25 0x35") for n in range(6)},
        FLAPPING,
        "stories: 12 replicas started in half an hour",
        own=False,
    ),
    Case(  # in one pod, and none was ever healthy; silent: one of them has been there for longer
        "TrifoldReplicasFlap",
        "40m",
        {STARTS.format(n, ',instance="a"'): ("_x15 1x30", "_x15 1x30" if n else "1x60") for n in range(11)},
        FLAPPING,
        "stories: 11 replicas started in half an hour",
        own=False,
    ),
    Case(  # one of eleven in a pod dies; silent: all start for the first time
        "TrifoldReplicasFlap",
        "40m",
        {STARTS.format(n, ',instance="a"'): ("_x15 1x30", "_x15 1x30" if n < 11 else None) for n in range(12)}
        | {f'{HEALTHY % n},instance="head"}}': "_x15 1x60" for n in range(11)},
        FLAPPING,
        "stories: 12 replicas started in half an hour",
        own=False,
    ),
    Case(  # one of eight dies again and again in its pod; silent: an update of eight and its rollback, five in a pod
        "TrifoldReplicasFlap",
        "40m",
        {STARTS.format(n, ',instance="a"'): "_x15 1x30" for n in range(10)}
        | {STARTS.format(n, ',instance="a"'): ("_x15 1x30", None) for n in range(10, 12)}
        | {STARTS.format(n, ',instance="b"'): (None, "_x15 1x30") for n in range(12, 18)}
        | {f'{HEALTHY % n},instance="head"}}': "1x60" for n in range(8)},
        FLAPPING,
        "stories: 12 replicas started in half an hour",
        own=False,
    ),
    Case(
        "TrifoldAutoscalerSaturated",
        "35m",
        {
            SHARED % 1: "1x40",
            SHARED % 2: ("1x40", "_x25 1x15"),  # silent: it has just come
            WAITING: "200x40",
            'trifold_model_info{model="stories",application="small"}': "1x40",
        },
        MODEL,
        "stories: 200 sequences wait, and for a quarter of an hour no replica came",
    ),
    Case(
        "TrifoldReplicasUnhealthy",
        "5m",
        {'ray_serve_deployment_status{application="stories",deployment="model"}': ("2x10", "4x3 6x7")},
        {"application": "stories", "deployment": "model"},
        "stories: replicas fail to start or fail their health checks (status 2)",
        own=False,
    ),
    Case(
        "TrifoldHeadMemoryGrows",
        "480m",
        {'ray_component_rss_mb{Component="gcs",instance="a"}': ("100+15x60", "100+1x60")},
        {"Component": "gcs", "instance": "a"},
        "at this rate Ray's control store needs 2.98k MB in a day",
        every="10m",
        own=False,
    ),
    Case(
        "TrifoldMemoryNearLimit",
        "20m",
        {
            f"container_memory_working_set_bytes{WORKER}}}": ("3.8e9x30", "3.4e9x30"),
            f'kube_pod_container_resource_limits{WORKER},resource="memory"}}': "4e9x30",
        },
        POD,
        "ray-worker of w-1 uses 95% of its memory limit",
        own=False,
    ),
    Case(  # a replica was, its container goes on
        "TrifoldOutOfMemory",
        "20m",
        {f"container_oom_events_total{WORKER}}}": ("0x12 1x20", "1x30")},  # silent: long ago
        POD,
        "ray-worker of w-1, or a replica in it, was killed for its memory",
        own=False,
    ),
    Case(
        "TrifoldOutOfMemory",
        "20m",
        {
            f"kube_pod_container_status_restarts_total{WORKER}}}": ("0x12 1x20", "1x30"),
            f'kube_pod_container_status_last_terminated_reason{WORKER},reason="OOMKilled"}}': "1x30",
        },
        POD,
        "ray-worker of w-1, or a replica in it, was killed for its memory",
        own=False,
    ),
    Case(  # a pod that is not started again
        "TrifoldOutOfMemory",
        "20m",
        {f'kube_pod_container_status_terminated_reason{WORKER},reason="OOMKilled"}}': ("_x10 1x2 _x18", "1x2 _x28")},
        POD,
        "ray-worker of w-1, or a replica in it, was killed for its memory",
        own=False,
    ),
    Case(  # Ray ended another replica; silent: long ago
        "TrifoldOutOfMemory",
        "30m",
        {f'ray_memory_manager_worker_eviction_total{WORKER},Name="stories"}}': ("1x20 2x20", "2x40")},
        POD,
        "ray-worker of w-1, or a replica in it, was killed for its memory",
        own=False,
    ),
    Case(
        "TrifoldRedisNotReady",
        "20m",
        {'kube_statefulset_status_replicas_ready{statefulset="trifold-redis"}': ("0x30", "0x8 1x22")},
        {},
        "Redis is not ready, and without it the head cannot run",
        own=False,
    ),
    Case(
        "TrifoldPodPending",
        "20m",
        {'kube_pod_status_phase{pod="w-1",phase="Pending"}': ("1x30", "1x8 0x20")},
        {"pod": "w-1"},
        "w-1 has been waiting for a node or its image for a quarter of an hour",
        own=False,
    ),
    Case(
        "TrifoldCpuThrottled",
        "30m",
        {
            f"container_cpu_cfs_throttled_periods_total{WORKER}}}": ("0+240x40", "0+60x40"),
            f"container_cpu_cfs_periods_total{WORKER}}}": "0+600x40",
        },
        POD,
        "ray-worker of w-1 is stopped in 40% of CPU periods",
        own=False,
    ),
    Case(
        "TrifoldGpuFault",
        "5m",
        {
            f'DCGM_EXP_XID_ERRORS_COUNT{GPU},xid="79"}}': ("1x10", None),
            f'DCGM_EXP_XID_ERRORS_COUNT{GPU},xid="31"}}': (None, "1x10"),  # a program's own fault
        },
        GPU_LABELS | {"xid": "79"},
        "GPU 0 of node-1 reports XID 79",
        own=False,
    ),
    Case(
        "TrifoldGpuMemoryFull",
        "15m",
        {
            f"DCGM_FI_DEV_FB_USED{GPU}}}": ("79000x20", "40000x20"),
            f"DCGM_FI_DEV_FB_FREE{GPU}}}": ("1000x20", "40000x20"),
        },
        GPU_LABELS,
        "GPU 0 of node-1 has 98.75% of its memory in use",
        own=False,
    ),
    Case(
        "TrifoldGpuHot",
        "10m",
        {f"DCGM_FI_DEV_GPU_TEMP{GPU}}}": ("91x20", "70x20")},
        GPU_LABELS,
        "GPU 0 of node-1 has 91 °C and slows down",
        own=False,
    ),
)
