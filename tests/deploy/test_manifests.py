from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml

from deploy.checks.__main__ import problems
from deploy.checks.compositions import COMPOSITIONS, Composition
from deploy.checks.trim import trim
from deploy.kustomize import can_render, compose
from service.settings import Limits
from service.timeouts import Timeouts

pytestmark = [
    pytest.mark.skipif(not can_render(), reason="needs kubectl or kustomize to render the components"),
    pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning"),
]

Resource = dict[str, Any]


@cache
def composed(*components: str, base: str = "base") -> list[Resource]:
    return compose(base, components)


def of_kind(kind: str, resources: list[Resource]) -> Resource:
    return next(resource for resource in resources if resource["kind"] == kind)


def named(name: str, resources: list[Resource]) -> Resource:
    return next(resource for resource in resources if resource["metadata"]["name"] == name)


def groups(resources: list[Resource]) -> dict[str, Resource]:
    """Return a RayService's groups of workers by name, and its head."""
    cluster = of_kind("RayService", resources)["spec"]["rayClusterConfig"]
    return {"head": cluster["headGroupSpec"]} | {group["groupName"]: group for group in cluster["workerGroupSpecs"]}


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=str)
def test_nothing_is_wrong_with_what_components_make(composition: Composition) -> None:
    assert list(problems(composed(*composition.components, base=composition.base))) == []


@pytest.mark.parametrize("served", ["cpu", "gpu", "dev"])
def test_components_make_the_same_in_any_order(served: str) -> None:
    components = (served, "ha", "monitoring", "pull-secret", "network-policy/gke", "gateway-api/gke")

    def by_name(resources: list[Resource]) -> list[Resource]:
        resources = copy.deepcopy(resources)
        for group in groups(resources).values():  # two components may add a variable each, and their order says nothing
            group["template"]["spec"]["containers"][0]["env"].sort(key=lambda variable: variable["name"])
        return sorted(resources, key=lambda resource: (resource["kind"], resource["metadata"]["name"]))

    assert by_name(composed(*components)) == by_name(composed(*reversed(components)))


@pytest.mark.parametrize("cloud", ["gke", "eks"])
def test_load_balancers_get_through_to_pods_without_kuberay_too(cloud: str) -> None:
    resources = composed(f"network-policy/{cloud}", base="plain")
    labels = of_kind("Deployment", resources)["spec"]["template"]["metadata"]["labels"]
    selector = named("trifold-load-balancer", resources)["spec"]["podSelector"]

    assert selector["matchLabels"].items() <= labels.items()
    (expression,) = selector["matchExpressions"]
    assert expression == {"key": "ray.io/node-type", "operator": "NotIn", "values": ["head"]}


@pytest.mark.parametrize("served", ["cpu", "gpu"])
def test_models_and_gateways_run_in_two_pods_at_least_on_two_nodes_if_there_is_room(served: str) -> None:
    service = of_kind("RayService", composed(served))["spec"]
    config = yaml.safe_load(service["serveConfigV2"])
    for application in config["applications"]:
        (deployment,) = application["deployments"]
        bounds = deployment.get("autoscaling_config", {})
        on_gpus = deployment["ray_actor_options"].get("num_gpus", 0) > 0
        assert deployment["max_replicas_per_node"] == 1 or on_gpus
        assert deployment.get("num_replicas", bounds.get("min_replicas")) in {0, 2}
    workers = service["rayClusterConfig"]["workerGroupSpecs"][0]
    assert workers["minReplicas"] == 2
    spread = {each["topologyKey"]: each for each in workers["template"]["spec"]["topologySpreadConstraints"]}
    assert spread.keys() == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    # A node that can hold no worker would otherwise keep all others at one each.
    assert {each["whenUnsatisfiable"] for each in spread.values()} == {"ScheduleAnyway"}


@pytest.mark.parametrize("order", [("gpu", "ha"), ("ha", "gpu")])
def test_workers_wait_for_a_head_that_can_come_back(order: tuple[str, ...]) -> None:
    name = "RAY_gcs_rpc_server_reconnect_timeout_s"
    for group in groups(composed(*order)).values():
        waits = [each for each in group["template"]["spec"]["containers"][0]["env"] if each["name"] == name]
        assert waits == [{"name": name, "value": "3600"}]
    assert name not in str(composed("gpu"))


def test_a_model_that_fails_stops_a_rollout_of_plain_but_not_the_others_traffic() -> None:
    (container,) = of_kind("Deployment", composed(base="plain"))["spec"]["template"]["spec"]["containers"]

    assert container["startupProbe"]["httpGet"]["path"] == "/ready"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready?any=true"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"


def test_one_node_is_enough_for_dev() -> None:
    resources = composed("dev")
    config = yaml.safe_load(of_kind("RayService", resources)["spec"]["serveConfigV2"])
    wanted = [
        deployment.get("num_replicas") or deployment["autoscaling_config"]["max_replicas"]
        for application in config["applications"]
        for deployment in application["deployments"]
    ]

    assert set(wanted) == {1} == {groups(resources)["cpu"]["maxReplicas"]}
    assert "topologySpreadConstraints" not in groups(resources)["cpu"]["template"]["spec"]


def test_pods_with_a_gpu_are_those_without_but_for_what_a_device_takes() -> None:
    cpu, gpu = (groups(composed("gpu"))[name]["template"]["spec"] for name in ("cpu", "gpu"))
    different = {name for name in cpu.keys() | gpu.keys() if cpu.get(name) != gpu.get(name)}
    (of_cpu,), (of_gpu,) = cpu["containers"], gpu["containers"]

    assert different == {"containers", "tolerations", "topologySpreadConstraints"}
    assert {name for name in of_cpu if of_cpu[name] != of_gpu[name]} == {"image", "resources"}


def test_a_group_with_gpus_grows_from_zero_where_no_node_has_a_label_yet() -> None:
    gpu = groups(composed("gpu"))["gpu"]

    assert (gpu["minReplicas"], gpu["replicas"]) == (0, 0)
    assert not {"nodeSelector", "affinity"} & gpu["template"]["spec"].keys()


def test_every_pod_has_the_secret_for_the_registry() -> None:
    for name, group in groups(composed("gpu", "pull-secret")).items():
        assert group["template"]["spec"]["imagePullSecrets"] == [{"name": "trifold-registry"}], name


@pytest.mark.parametrize("source", ["store", "volume", "image"])
@pytest.mark.parametrize("order", [("gpu", "models/{}"), ("models/{}", "gpu")])
def test_packages_come_to_every_pod(source: str, order: tuple[str, ...]) -> None:
    for name, group in groups(composed(*(component.format(source) for component in order))).items():
        pod = group["template"]["spec"]
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "packages")
        assert volume.keys() & {"emptyDir", "persistentVolumeClaim", "image"}, name
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert (mounts["/models"], mounts["/etc/trifold"]) == ("packages", "models-file")


def test_packages_are_fetched_by_the_image_of_the_service_before_it_starts() -> None:
    fetched = [
        *(group["template"] for group in groups(composed("models/store", "cpu")).values()),
        of_kind("Deployment", composed("models/store", base="plain"))["spec"]["template"],
    ]

    for pod in fetched:
        (fetch,) = pod["spec"]["initContainers"]
        assert fetch["command"][:2] == ["trifold", "fetch"]
        assert fetch["image"] == pod["spec"]["containers"][0]["image"]
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in fetch["volumeMounts"]} <= volumes


def test_each_group_of_workers_has_a_budget_of_its_own() -> None:
    budgets = [each for each in composed("gpu") if each["kind"] == "PodDisruptionBudget"]

    assert {each["spec"]["selector"]["matchLabels"]["ray.io/group"] for each in budgets} == {"cpu", "gpu"}


def worker(service: Resource) -> Resource:
    group: Resource = service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
    return group


def container(service: Resource) -> Resource:
    first: Resource = worker(service)["template"]["spec"]["containers"][0]
    return first


def head(service: Resource) -> Resource:
    first: Resource = service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    return first


def serve(service: Resource, old: str, new: str) -> None:
    config = service["spec"]["serveConfigV2"]
    assert old in config
    service["spec"]["serveConfigV2"] = config.replace(old, new, 1)


def variable(service: Resource, name: str, value: str) -> None:
    next(entry for entry in container(service)["env"] if entry["name"] == name)["value"] = value


def set_key(values: Resource, key: str, value: Any) -> None:
    values[key] = value


def without(service: Resource, name: str) -> None:
    container(service)["env"] = [entry for entry in container(service)["env"] if entry["name"] != name]


LIMIT = "TRIFOLD_LIMITS__REQUEST_TIMEOUT_S"
NODES_FILES = {"name": "node", "hostPath": {"path": "/"}}
# What somebody might do to the RayService, the check that must find it, and words of what it says.
MISTAKES: list[tuple[Callable[[Resource], Any], str, str]] = [
    (lambda s: set_key(s["spec"], "excludeHeadFromServeSvc", True), "schemas", "excludeHeadFromServeSvc"),
    (lambda s: set_key(worker(s), "minReplica", 1), "schemas", "minReplica"),
    (lambda s: set_key(container(s), "livenesProbe", {}), "schemas", "livenesProbe"),
    (lambda s: set_key(s["spec"], "excludeHeadPodFromServeSvc", False), "operator", "must not take traffic"),
    (lambda s: set_key(worker(s), "minReplicas", 9), "operator", "between minReplicas and maxReplicas"),
    (lambda s: set_key(s["spec"]["rayClusterConfig"], "rayVersion", "2.51.0"), "operator", "2.52"),
    (lambda s: set_key(worker(s)["template"]["spec"], "restartPolicy", "Always"), "operator", "restartPolicy"),
    (lambda s: set_key(container(s), "name", "sidecar"), "operator", "must be the first"),
    (lambda s: variable(s, "RAY_SERVE_ENABLE_HA_PROXY", "0"), "environment", "RAY_SERVE_ENABLE_HA_PROXY must be 1"),
    (lambda s: variable(s, "RAY_ROTATION_MAX_BYTES", "0"), "environment", "RAY_ROTATION_MAX_BYTES must be"),
    (lambda s: serve(s, "max_ongoing_requests", "max_ongoing_request"), "serve", "Ray knows no such field"),
    (lambda s: serve(s, "upscale_delay_s", "upscale_delays"), "serve", "upscale_delays"),
    (lambda s: serve(s, "max_replicas: 8", "max_replicas: 1"), "serve", "max_replicas"),
    (lambda s: serve(s, "hold_s", "holds"), "serve", "unexpected keyword argument 'holds'"),
    (lambda s: serve(s, "service.app:build_model", "service.app:build"), "serve", "no attribute 'build'"),
    (lambda s: serve(s, "request_timeout_s: 130.0", "request_timeout_s: 60"), "timeouts", "must exceed the service's"),
    (
        lambda s: serve(s, "shutdown_timeout_s: 160", "shutdown_timeout_s: 175"),
        "timeouts",
        "must exceed what a replica",
    ),
    (lambda s: serve(s, "shutdown_timeout_s: 160", "shutdown_timeout_s: 60"), "timeouts", "notice and the service's"),
    (lambda s: variable(s, "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", "170"), "timeouts", "what a replica has"),
    (lambda s: variable(s, "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S", "30"), "timeouts", "the service's own patience"),
    (lambda s: variable(s, "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S", "130"), "timeouts", "exceed http_options.request"),
    (lambda s: variable(s, "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S", "60"), "timeouts", "exceed http_options.request"),
    (
        lambda s: head(s)["env"].append({"name": LIMIT, "value": "150"}),
        "timeouts",
        "must exceed the service's deadline",
    ),
    (lambda s: container(s)["env"].pop(0), "environment", "TRIFOLD_API_KEYS_FILE is not what the head has"),
    (lambda s: worker(s)["template"]["spec"].pop("enableServiceLinks"), "environment", "enableServiceLinks must be"),
    (lambda s: head(s)["ports"].pop(0), "operator", "a port must be named serve"),
    (
        lambda s: set_key(worker(s)["template"]["spec"], "terminationGracePeriodSeconds", 30),
        "timeouts",
        "must exceed Ray's drain",
    ),
    (lambda s: set_key(container(s)["readinessProbe"]["httpGet"], "path", "/ready"), "timeouts", "ask for /-/healthz"),
    (lambda s: container(s).pop("readinessProbe"), "timeouts", "needs wget"),
    (lambda s: set_key(container(s)["securityContext"], "readOnlyRootFilesystem", False), "security", "read-only"),
    (lambda s: worker(s)["template"]["spec"].pop("securityContext"), "security", "another user than root"),
    (lambda s: container(s)["volumeMounts"].pop(1), "files", "nothing is mounted at /etc/trifold-keys"),
    (lambda s: worker(s)["template"]["spec"]["volumes"].pop(1), "files", "there is no volume keys"),
    (lambda s: set_key(container(s), "image", "trifold:latest"), "security", "must have a version"),
    (
        lambda s: container(s)["env"].append({"name": "TRIFOLD_API_KEYS", "value": "[]"}),
        "security",
        "must come from one",
    ),
    (lambda s: container(s)["securityContext"].pop("capabilities"), "security", "must drop all capabilities"),
    (lambda s: set_key(container(s)["securityContext"], "allowPrivilegeEscalation", True), "security", "not gain"),
    (lambda s: container(s)["resources"]["limits"].pop("memory"), "security", "must have a limit of memory"),
    (lambda s: worker(s)["template"]["spec"]["volumes"].append(NODES_FILES), "security", "the node's files or network"),
    (lambda s: set_key(worker(s)["template"]["spec"], "hostNetwork", True), "security", "the node's files or network"),
    (lambda s: set_key(worker(s)["template"]["spec"], "automountServiceAccountToken", True), "security", "token"),
    (lambda s: worker(s)["template"]["spec"].pop("automountServiceAccountToken"), "security", "token"),
    (lambda s: set_key(s["spec"]["rayClusterConfig"], "upgradeStrategy", {}), "operator", "belongs to the RayService"),
    (
        lambda s: s["spec"]["rayClusterConfig"]["headGroupSpec"]["rayStartParams"].pop("num-cpus"),
        "operator",
        "must be 0, or replicas come to the head",
    ),
    (
        lambda s: (
            s["spec"]["rayClusterConfig"].update(gcsFaultToleranceOptions={"redisAddress": "redis:6379"}),
            container(s)["env"].append({"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}),
        ),
        "operator",
        "may not be in the environment too",
    ),
    (
        lambda s: (worker(s).update(resources={"CPU": "1"}), worker(s)["rayStartParams"].update({"num-cpus": "1"})),
        "operator",
        "resources are given twice",
    ),
    (
        lambda s: container(s)["env"].append({"name": "RAY_enable_autoscaler_v2", "value": "1"}),
        "operator",
        "exclude one another",
    ),
    (lambda s: set_key(container(s)["readinessProbe"], "periodSeconds", 1), "timeouts", "its timeoutSeconds"),
    (lambda s: without(s, "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S"), "timeouts", "CLIENT_S must be set"),
    (lambda s: without(s, "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"), "timeouts", "PERIOD_S must be set"),
]


@pytest.mark.parametrize(("mistake", "check", "words"), MISTAKES)
def test_a_mistake_is_found(mistake: Callable[[Resource], Any], check: str, words: str) -> None:
    service = copy.deepcopy(of_kind("RayService", composed("cpu")))
    mistake(service)

    found = list(problems([service]))
    assert any(name == check and words in problem for name, problem in found), found


def test_a_typo_in_a_built_in_kind_is_found() -> None:
    budget = copy.deepcopy(of_kind("PodDisruptionBudget", composed("cpu")))
    budget["spec"]["minAvailabel"] = 1

    assert any(check == "schemas" and "minAvailabel" in problem for check, problem in problems([budget]))


def test_a_budget_that_would_block_every_drain_is_found() -> None:
    budget = copy.deepcopy(of_kind("PodDisruptionBudget", composed("cpu")))
    budget["spec"] = {"maxUnavailable": 1, "selector": budget["spec"]["selector"]}

    assert any(check == "operator" and "no scale" in problem for check, problem in problems([budget]))


def test_another_models_file_leaves_the_cluster_as_it_is() -> None:
    resources = composed("gpu")
    named = {
        volume["configMap"]["name"]
        for group in groups(resources).values()
        for volume in group["template"]["spec"]["volumes"]
        if "configMap" in volume
    }

    assert named == {of_kind("ConfigMap", resources)["metadata"]["name"]} == {"trifold-models"}


def test_a_secret_for_the_registry_and_a_models_file_reach_pods_without_kuberay() -> None:
    pod = of_kind("Deployment", composed("pull-secret", "models-file", base="plain"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["imagePullSecrets"] == [{"name": "trifold-registry"}]
    assert {"name": "TRIFOLD_MODELS_FILE", "value": "/etc/trifold/models.yaml"} in container["env"]
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}


def test_an_apply_leaves_the_number_of_pods_to_keda() -> None:
    assert "replicas" not in of_kind("Deployment", composed("keda", base="plain"))["spec"]


LEAVING_S = 40 + Timeouts.of(Limits()).drain  # notice and drain; and then Ray has to end

# What somebody might do to other resources, with the components that have them, and words of what must be found.
OTHER_MISTAKES: list[tuple[str, str, Callable[[Resource], None], str]] = [
    ("gateway-api/plain", "HTTPRoute", lambda r: r["spec"]["rules"][0]["timeouts"].update(request="2m"), "request_tim"),
    ("gateway-api/plain", "HTTPRoute", lambda r: r["spec"]["rules"][0]["timeouts"].update(reqest="5m"), "reqest"),
    ("gateway-api/plain", "Gateway", lambda r: r["spec"]["listeners"][0].pop("protocol"), "protocol"),
    ("gateway-api/gke", "GCPBackendPolicy", lambda r: r["spec"]["default"].pop("timeoutSec"), "30 s, and must exceed"),
    ("ingress/eks", "Ingress", lambda r: r["metadata"]["annotations"].clear(), "60 s, and must exceed"),
    (
        "ingress/eks",
        "Ingress",
        lambda r: set_key(
            r["metadata"]["annotations"],
            "alb.ingress.kubernetes.io/load-balancer-attributes",
            "idle_timeout.timeout_seconds=700",
        ),
        "keep_alive_timeout_s is 620 s, and must exceed",
    ),
    ("keda", "ScaledObject", lambda r: r["spec"]["triggers"][0]["metadata"].update(threshold=64), "not of type"),
    ("keda", "Deployment", lambda r: r["spec"]["template"]["spec"].pop("terminationGracePeriodSeconds"), "30 s, and"),
    (
        "keda",
        "Deployment",
        lambda r: r["spec"]["template"]["spec"]["containers"][0]["env"].append(
            {"name": "TRIFOLD_LIMITS__REQUEST_TIMEOUT_S", "value": "170"}
        ),
        "notice, drain and end",
    ),
    ("keda", "Deployment", lambda r: r["spec"]["template"]["spec"].pop("enableServiceLinks"), "must be false"),
    (
        "keda",
        "Deployment",
        lambda r: set_key(r["spec"]["template"]["spec"], "terminationGracePeriodSeconds", LEAVING_S + 1),
        "notice, drain and end",
    ),
    (
        "models/store",
        "Deployment",
        lambda r: r["spec"]["template"]["spec"]["initContainers"][0]["securityContext"].pop("capabilities"),
        "must drop all capabilities",
    ),
]


@pytest.mark.parametrize(("component", "kind", "mistake", "words"), OTHER_MISTAKES)
def test_a_mistake_beside_the_cluster_is_found(
    component: str, kind: str, mistake: Callable[[Resource], Any], words: str
) -> None:
    resource = copy.deepcopy(of_kind(kind, composed(component, base="plain")))
    mistake(resource)

    found = [problem for _, problem in problems([resource])]
    assert any(words in problem for problem in found), found


def test_what_stands_before_waits_for_the_deadline_of_the_composition() -> None:
    resources = copy.deepcopy(composed("gateway-api/plain", base="plain"))
    (container,) = of_kind("Deployment", resources)["spec"]["template"]["spec"]["containers"]
    assert not [problem for _, problem in problems(resources) if "HTTPRoute" in problem]

    container["env"].append({"name": "TRIFOLD_LIMITS__REQUEST_TIMEOUT_S", "value": "300"})
    found = [problem for _, problem in problems(resources) if "HTTPRoute" in problem]
    assert found and all("150 s, and must exceed http_options.request_timeout_s, 310 s" in each for each in found)


def test_what_an_operator_has_given_up_is_in_no_schema() -> None:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {}}}}}
    versions = [
        {"name": "v1", "served": True, "schema": schema},
        {"name": "v1beta1", "served": True, "deprecated": True, "schema": schema},
        {"name": "v1alpha1", "served": False, "schema": schema},
    ]
    trimmed = trim({"spec": {"group": "ray.io", "names": {"kind": "RayService"}, "versions": versions}})

    assert list(trimmed["versions"]) == ["v1"]
    assert trimmed["versions"]["v1"]["properties"]["spec"]["additionalProperties"] is False
