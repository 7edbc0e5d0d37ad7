from __future__ import annotations

import pytest

from tests.deploy.queries import unknown

LABELS = {
    "trifold_sequences_waiting": {"model"},
    "trifold_step_seconds_bucket": {"model", "phase", "le"},
    "trifold_model_info": {"model", "application", "task"},
    "ray_serve_deployment_replica_healthy": {"application", "deployment", "replica"},
}
HEALTHY = "ray_serve_deployment_replica_healthy"


@pytest.mark.parametrize(
    "query",
    [
        'sum by (model, namespace) (trifold_sequences_waiting{model=~"(a|b)", namespace="n"}) > 64',
        "histogram_quantile(0.5, sum by (model, le) (rate(trifold_step_seconds_bucket[5m])))",
        "max by (pod) (kube_pod_status_phase) > 0 and on (namespace) trifold_sequences_waiting",
        f"""sum by (model) (trifold_sequences_waiting) > 64 and on (model) (
          group by (model, application) (trifold_model_info)
          and on (application) changes((sum by (application) ({HEALTHY}))[15m:1m]) == 0
        )""",
        'model:trifold_request_errors:ratio_rate5m{model=~"$model"} > 1',
    ],
)
def test_what_metrics_show_may_be_asked_for(query: str) -> None:
    assert list(unknown(query, LABELS)) == []


@pytest.mark.parametrize(
    ("query", "problems"),
    [
        (
            "rate(trifold_nonsense_total[5m]) and on (namespace) kube_pod_status_phase",
            ["no metric trifold_nonsense_total"],
        ),
        (
            'trifold_sequences_waiting{task="generate"} and on (model) trifold_model_info',
            ["no label task of trifold_sequences_waiting"],
        ),
        (
            "sum by (application) (trifold_sequences_waiting) > 64 and on (application) trifold_model_info",
            ["no label application of trifold_sequences_waiting"] * 2,  # of the sum, and of what is joined
        ),
        (
            f"changes((sum by (model) ({HEALTHY}))[15m:1m]) == 0 and on (model) trifold_model_info",
            [f"no label model of {HEALTHY}"] * 2,
        ),
        (
            "sum by (model) (trifold_sequences_waiting) and on (task) trifold_model_info",
            ["no label task of trifold_sequences_waiting"],
        ),
        (
            'sum by (le) (trifold_sequences_waiting) > 0 and on (namespace) kube_pod_status_phase{phase="Pending"}',
            ["no label le of trifold_sequences_waiting"],
        ),
    ],
)
def test_a_label_that_its_own_metric_has_not_is_told(query: str, problems: list[str]) -> None:
    assert list(unknown(query, LABELS)) == [f"{problem}: {query}" for problem in problems]
