from __future__ import annotations

from typing import Any

import helm_python
import pytest
import yaml

from deploy.chart import CHART
from deploy.checks.__main__ import problems
from deploy.kustomize import can_render, compose
from tests.deploy.charts import ALONE, PACKAGES, STORE, Resource, by_name, rendered, templates

pytestmark = pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")


def test_helm_finds_nothing_to_complain_about() -> None:
    report = helm_python.lint(CHART, strict=True)

    assert report["errors"] == []
    assert [message["error"] for message in report["messages"]] == ["icon is recommended"]


SAMPLE_ARN = "arn:aws:acm:eu-north-1:111122223333:certificate/00000000-0000-0000-0000-000000000000"  # of the component
SAME: list[tuple[str, list[str], dict[str, Any]]] = [
    ("base", ["cpu", "ha", "network-policy/plain"], {}),
    ("base", ["gpu", "pull-secret"], {**ALONE, "served": "gpu", "image": {"pullSecrets": ["trifold-registry"]}}),
    (
        "base",
        ["dev", "ingress/eks"],
        {"served": "dev", "networkPolicy": "none", "entrance": {"kind": "ingress-eks", "certificateArn": SAMPLE_ARN}},
    ),
    (
        "base",
        ["gpu", "ha", "monitoring", "network-policy/gke", "gateway-api/gke"],
        {
            "served": "gpu",
            "monitoring": {"enabled": True},
            "networkPolicy": "gke",
            "entrance": {"kind": "gateway-api-gke"},
        },
    ),
    ("base", ["gpu", "models/volume"], {**ALONE, "served": "gpu", "packages": {"from": "volume"}}),
    (
        "base",
        ["dev", "models/image"],
        {**ALONE, "served": "dev", "packages": {"from": "image", "image": "registry.example.com/trifold-models:1"}},
    ),
    ("plain", ["models/volume"], {**ALONE, "served": "plain", "packages": {"from": "volume"}}),
    (
        "plain",
        ["keda", "network-policy/eks", "gateway-api/plain"],
        {
            "served": "plain",
            "keda": {"enabled": True},
            "networkPolicy": "eks",
            "entrance": {"kind": "gateway-api"},
        },
    ),
]


@pytest.mark.skipif(not can_render(), reason="needs kubectl or kustomize to render the components")
@pytest.mark.parametrize(("base", "components", "values"), SAME)
def test_the_chart_makes_what_the_components_make(
    base: str, components: list[str], values: dict[str, Any], chart: helm_python.Chart
) -> None:
    assert rendered(chart, **values) == by_name(compose(base, components))


MODELS = "models:\n  - package: /models/writer\n    name: writer\n"
CHANGED: dict[str, dict[str, Any]] = {
    "image": {"cpu": "example.com/mine@sha256:" + 64 * "0", "gpu": "example.com/mine:2-gpu"},
    "workers": {
        "cpu": {"minReplicas": 3, "maxReplicas": 12, "nodeSelector": {"pool": "cpu"}},
        "gpu": {"maxReplicas": 2, "tolerations": [{"key": "pool", "operator": "Exists"}]},
    },
    "head": {"priorityClassName": "high"},
    "monitoring": {"enabled": True, "labels": {"release": "prometheus"}},
}


def test_values_change_what_they_name(chart: helm_python.Chart) -> None:
    resources = rendered(
        chart, "elsewhere", served="gpu", env=[{"name": "TRIFOLD_OTLP_ENDPOINT", "value": "http://c"}], **CHANGED
    )
    cluster = resources["RayService", "trifold"]["spec"]["rayClusterConfig"]
    cpu, gpu = cluster["workerGroupSpecs"]
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], cpu, gpu)]

    assert {each["metadata"]["namespace"] for each in resources.values()} == {"elsewhere"}
    images = [pod["containers"][0]["image"] for pod in pods]
    assert images == [CHANGED["image"]["cpu"], CHANGED["image"]["cpu"], CHANGED["image"]["gpu"]]
    assert (cpu["minReplicas"], cpu["replicas"], cpu["maxReplicas"], gpu["maxReplicas"]) == (3, 3, 12, 2)
    assert pods[1]["nodeSelector"] == {"pool": "cpu"}
    assert [each["key"] for each in pods[2]["tolerations"]] == ["nvidia.com/gpu", "pool"]
    assert pods[0]["priorityClassName"] == "high"
    assert all(pod["containers"][0]["env"][-1]["name"] == "TRIFOLD_OTLP_ENDPOINT" for pod in pods)
    assert resources["PodMonitor", "trifold-worker"]["metadata"]["labels"]["release"] == "prometheus"
    assert [problem for resource in resources.values() for problem in problems([resource])] == []


def test_an_entrance_has_the_name_of_its_host(chart: helm_python.Chart) -> None:
    entrance = {"kind": "gateway-api", "host": "ask.example.org", "gatewayClass": "nginx", "secret": "wildcard"}
    resources = rendered(chart, entrance=entrance)
    gateway = resources["Gateway", "trifold"]["spec"]

    assert gateway["gatewayClassName"] == "nginx"
    assert {listener["hostname"] for listener in gateway["listeners"]} == {"ask.example.org"}
    assert gateway["listeners"][0]["tls"]["certificateRefs"] == [{"name": "wildcard"}]
    assert resources["HTTPRoute", "trifold-to-https"]["spec"]["hostnames"] == ["ask.example.org"]


@pytest.mark.parametrize("served", ["cpu", "plain"])
def test_models_of_ones_own_are_in_every_pod(served: str, chart: helm_python.Chart) -> None:
    own = {"models": MODELS, "serveConfig": "applications: []\n"}
    resources = rendered(chart, served=served, monitoring={"enabled": True}, **own)
    kind = {"cpu": "RayService", "plain": "Deployment"}[served]
    text = yaml.safe_dump(resources[kind, "trifold"])

    assert resources["ConfigMap", "trifold-models"]["data"]["models.yaml"] == MODELS
    maps = [each["data"] for (kind, _), each in resources.items() if kind == "ConfigMap"]
    assert sum("models.yaml" in data for data in maps) == 1 < len(maps)
    assert text.count("name: TRIFOLD_MODELS_FILE") == text.count("secretName: trifold-api-keys")
    if served == "cpu":
        assert resources["RayService", "trifold"]["spec"]["serveConfigV2"] == "applications: []\n"


@pytest.mark.parametrize(("served", "is_new"), [("plain", True), ("cpu", False)])
def test_another_models_file_makes_new_pods_only_where_nobody_else_tells_them(
    served: str, is_new: bool, chart: helm_python.Chart
) -> None:
    one, other = (
        templates(rendered(chart, served=served, models=models, serveConfig="applications: []\n"))
        for models in (MODELS, MODELS + "    max_slots: 16\n")
    )

    assert (one != other) is is_new


def test_every_pod_has_the_volumes_that_the_values_add(chart: helm_python.Chart) -> None:
    mount = {"name": "company", "mountPath": "/etc/company", "readOnly": True}
    volume = {"name": "company", "configMap": {"name": "certificates"}}
    before = {"name": "wait", "image": "example.com/wait:1"}
    more: Resource = {"volumes": [volume], "volumeMounts": [mount], "initContainers": [before]}

    for template in templates(rendered(chart, packages=STORE, **more)):
        pod = template["spec"]
        assert volume in pod["volumes"] and mount in pod["containers"][0]["volumeMounts"]
        assert [each["name"] for each in pod["initContainers"]] == ["fetch-models", "wait"]


@pytest.mark.parametrize("served", ["gpu", "plain"])
def test_every_pod_has_the_annotations_that_the_values_add(served: str, chart: helm_python.Chart) -> None:
    rolled = {"rolled": "2030-01-01"}
    for template in templates(rendered(chart, served=served, packages=STORE, podAnnotations=rolled)):
        annotations = template["metadata"]["annotations"]
        assert annotations["rolled"] == "2030-01-01" and "checksum/packages" in annotations
    head, *_ = templates(rendered(chart, podAnnotations=rolled))
    assert head["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"


WAITS = "RAY_gcs_rpc_server_reconnect_timeout_s"


def waits(template: Resource) -> list[str]:
    """Return how long a pod waits for a head that is away, in each variable that says so."""
    return [each["value"] for each in template["spec"]["containers"][0]["env"] if each["name"] == WAITS]


def test_redis_is_where_and_from_where_the_values_say(chart: helm_python.Chart) -> None:
    dedicated = {"key": "dedicated", "operator": "Exists"}
    placing = {"tolerations": [dedicated], "nodeSelector": {"pool": "disks"}, "priorityClassName": "high"}
    ha = {"image": "mirror.example.com/redis:7.4.6", "storageClass": "replicated", **placing}
    resources = rendered(chart, ha=ha, head={"nodeSelector": {"pool": "heads"}}, image={"pullSecrets": ["mirror"]})
    redis = resources["StatefulSet", "trifold-redis"]["spec"]
    pod = redis["template"]["spec"]

    assert pod["containers"][0]["image"] == ha["image"]
    assert redis["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "replicated"
    assert pod["imagePullSecrets"] == [{"name": "mirror"}]
    assert {name: pod[name] for name in placing} == placing
    assert pod["affinity"]["podAntiAffinity"]  # still away from the head
    assert list(problems(list(resources.values()))) == []


@pytest.mark.parametrize("policy", ["plain", "none"])
def test_a_redis_that_is_there_already_takes_the_place_of_the_charts(policy: str, chart: helm_python.Chart) -> None:
    resources = rendered(chart, ha={"address": "rediss://redis.example.com:6380"}, networkPolicy=policy)
    options = resources["RayService", "trifold"]["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    policies = {name for kind, name in resources if kind == "NetworkPolicy"}

    assert options["redisAddress"] == "rediss://redis.example.com:6380"
    assert options["redisPassword"]["valueFrom"]["secretKeyRef"] == {"name": "trifold-redis", "key": "password"}
    assert not {("StatefulSet", "trifold-redis"), ("Service", "trifold-redis")} & resources.keys()
    assert ("trifold-redis" in policies) is (policy == "plain")
    if policy == "plain":
        spec = resources["NetworkPolicy", "trifold-redis"]["spec"]
        assert spec["egress"] == [{"ports": [{"port": 6380}]}] and spec["policyTypes"] == ["Egress"]
    assert all(waits(template) == ["3600"] for template in templates(resources))
    assert list(problems(list(resources.values()))) == []


def test_how_long_workers_wait_for_a_head_may_be_said(chart: helm_python.Chart) -> None:
    shorter = rendered(chart, env=[{"name": WAITS, "value": "900"}])
    without = rendered(chart, ha={"enabled": False})

    assert all(waits(template) == ["900"] for template in templates(shorter))
    assert all(waits(template) == [] for template in templates(without))


def test_resources_that_the_values_do_not_name_stay(chart: helm_python.Chart) -> None:
    smaller = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    before, after = (
        rendered(chart, served="gpu", workers={"gpu": {"resources": resources}})["RayService", "trifold"]
        for resources in ({}, smaller)
    )

    old, new = (
        next(
            group["template"]["spec"]["containers"][0]["resources"]
            for group in service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
            if group["groupName"] == "gpu"
        )
        for service in (before, after)
    )
    assert old["limits"]["nvidia.com/gpu"] == "1"
    assert new == {bounds: {**old[bounds], "cpu": "2"} for bounds in ("requests", "limits")}


def test_a_limit_that_is_taken_away_leaves_the_request(chart: helm_python.Chart) -> None:
    resources = rendered(chart, workers={"cpu": {"resources": {"limits": {"cpu": None}}}})
    (group, *_) = resources["RayService", "trifold"]["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    found = group["template"]["spec"]["containers"][0]["resources"]

    assert "cpu" not in found["limits"] and found["requests"]["cpu"] and found["limits"]["memory"]


@pytest.mark.parametrize("given", ["limits", "requests"])
def test_what_is_a_limit_or_a_request_alone_is_both(given: str, chart: helm_python.Chart) -> None:
    resources = {given: {"cpu": "1", "memory": "40Gi"}}
    values: Resource = {"workers": {"cpu": {"resources": resources}}, "env": None, "podAnnotations": None}
    service = rendered(chart, **values)["RayService", "trifold"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    found = group["template"]["spec"]["containers"][0]["resources"]

    assert all((found[each]["cpu"], found[each]["memory"]) == ("1", "40Gi") for each in ("limits", "requests"))


def test_a_variable_of_the_values_takes_the_place_of_the_one_that_is_there(chart: helm_python.Chart) -> None:
    longer = {"name": "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S", "value": "320"}
    for template in templates(rendered(chart, env=[longer])):
        variables = template["spec"]["containers"][0]["env"]
        names = [variable["name"] for variable in variables]
        assert longer in variables and len(names) == len(set(names))


def test_without_keys_no_secret_of_them_is_needed(chart: helm_python.Chart) -> None:
    for value in (None, "false", "true"):
        env = [] if value is None else [{"name": "TRIFOLD_ALLOW_ANONYMOUS", "value": value}]
        for template in templates(rendered(chart, env=env)):
            names = [variable["name"] for variable in template["spec"]["containers"][0]["env"]]
            keys = next(volume for volume in template["spec"]["volumes"] if volume["name"] == "keys")
            assert ("TRIFOLD_API_KEYS_FILE" in names) == (value != "true")
            assert keys["secret"].get("optional", False) == (value == "true")


def test_a_group_has_room_for_the_workers_that_it_always_has(chart: helm_python.Chart) -> None:
    service = rendered(chart, workers={"cpu": {"minReplicas": 10}})["RayService", "trifold"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]

    assert (group["minReplicas"], group["maxReplicas"]) == (10, 10)


BANNER = "==========\n== CUDA ==\n==========\n\nCUDA Version 13.0.2\n\n"  # of NVIDIA's base images


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"models": MODELS, "serveConfig": BANNER + "applications: []\n"}, r"python -m service\.serve_config"),
        ({"models": MODELS, "serveConfig": "CUDA Version 13.0.2\n"}, r"python -m service\.serve_config"),
        ({"workers": {"cpu": {"minReplicas": 3, "maxReplicas": 2}}}, "workers.cpu"),
        ({"served": "plain", "keda": {"enabled": True, "minReplicas": 3, "maxReplicas": 2}}, "keda"),
        ({"served": "gpu", "image": {"cpu": "example.com/trifold:1-cpu"}}, "image.gpu"),
    ],
)
def test_values_that_cannot_go_together_are_refused(
    values: dict[str, Any], words: str, chart: helm_python.Chart
) -> None:
    with pytest.raises(helm_python.HelmRenderError, match=words):
        chart.render(values, name="trifold", namespace="trifold")


def test_a_load_balancer_without_a_certificate_of_its_own_has_none_that_is_made_up(chart: helm_python.Chart) -> None:
    ingress = rendered(chart, entrance={"kind": "ingress-eks"})["Ingress", "trifold"]

    assert "alb.ingress.kubernetes.io/certificate-arn" not in ingress["metadata"]["annotations"]


def test_keda_asks_for_the_metrics_of_its_own_namespace(chart: helm_python.Chart) -> None:
    scaled = rendered(chart, "elsewhere", served="plain", keda={"enabled": True, "maxReplicas": 20, "requests": 7})
    spec = scaled["ScaledObject", "trifold"]["spec"]

    assert spec["maxReplicaCount"] == 20
    assert [trigger["metadata"]["threshold"] for trigger in spec["triggers"]] == ["7", "2048", "96"]
    assert all('namespace="elsewhere"' in trigger["metadata"]["query"] for trigger in spec["triggers"])
    assert "replicas" not in scaled["Deployment", "trifold"]["spec"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"serve": "cpu"}, "serve"),
        ({"served": "tpu"}, "served"),
        ({"workers": {"gpu": {"minReplica": 1}}}, "minReplica"),
        ({"image": {"cpu": "example.com/trifold:latest"}}, "cpu"),
        ({"keda": {"maxReplicas": "8"}}, "maxReplicas"),
        ({"packages": {"from": "store"}}, "packages"),
        ({"packages": {"list": PACKAGES}}, "packages"),
        ({"packages": {"from": "image"}}, "packages"),
        ({"packages": {"from": "store", "list": [{"name": "../etc", "from": "s3://models/a"}]}}, "name"),
        ({"packages": {"from": "store", "list": [{"name": "a", "from": "ftp://models/a"}]}}, "from"),
        ({"ha": {"address": "redis.example.com:6379"}}, "address"),
        ({"ha": {"address": "redis://:password@redis.example.com:6379"}}, "address"),
        ({"ha": {"image": "redis:latest"}}, "image"),
        ({"podAnnotations": {"rolled": 1}}, "rolled"),
    ],
)
def test_the_schema_refuses_wrong_values(values: dict[str, Any], words: str, chart: helm_python.Chart) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=words):
        chart.validate_schema(chart.merge_values(values))


def test_models_without_serves_configuration_are_refused(chart: helm_python.Chart) -> None:
    with pytest.raises(helm_python.HelmRenderError, match=r"python -m service\.serve_config"):
        chart.render({"models": MODELS}, name="trifold", namespace="trifold")
