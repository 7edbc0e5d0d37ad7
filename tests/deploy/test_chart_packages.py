"""From where the chart's pods get their packages."""

from __future__ import annotations

from pathlib import Path

import helm_python
import pytest

from deploy.checks.__main__ import problems
from deploy.kustomize import can_render, compose
from model.storage.listing import read_list
from tests.deploy.charts import ALONE, PACKAGES, STORE, Resource, by_name, rendered, templates

pytestmark = pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")


@pytest.mark.skipif(not can_render(), reason="needs kubectl or kustomize to render the components")
@pytest.mark.parametrize(("base", "served"), [("base", "gpu"), ("plain", "plain")])
def test_packages_are_fetched_as_the_components_do_it(base: str, served: str, chart: helm_python.Chart) -> None:
    components = ["models/store", "network-policy/gke", "network-policy/store"]
    resources = rendered(chart, **{**ALONE, "served": served, "networkPolicy": "gke", "packages": STORE})
    found = list(problems(list(resources.values())))
    del resources["ConfigMap", "trifold-packages"]
    for template in templates(resources):
        assert template["metadata"]["annotations"].pop("checksum/packages")

    assert found == []
    expected = by_name(compose(base, [*([served] if base == "base" else []), *components]))
    for template in (*templates(resources), *templates(expected)):
        template["metadata"].setdefault("annotations", {})
    assert resources == expected


def test_the_list_of_packages_is_one_that_can_be_fetched(chart: helm_python.Chart, tmp_path: Path) -> None:
    data = rendered(chart, packages=STORE)["ConfigMap", "trifold-packages"]["data"]
    (tmp_path / "packages.yaml").write_text(data["packages.yaml"])

    assert [(name, package.sha256) for name, package in read_list(tmp_path / "packages.yaml")] == [
        ("sentiment", 64 * "7"),
        ("writer", None),
    ]


def test_another_list_of_packages_makes_new_pods(chart: helm_python.Chart) -> None:
    one, other = (
        [each["metadata"]["annotations"] for each in templates(rendered(chart, packages={**STORE, "list": packages}))]
        for packages in (PACKAGES, PACKAGES[:1])
    )

    assert all(mine != theirs for mine, theirs in zip(one, other, strict=True))


def test_what_fetches_packages_is_the_image_of_pods_without_a_gpu(chart: helm_python.Chart) -> None:
    packages, image = (
        {**STORE, "room": "90Gi", "secret": "bucket"},
        {"cpu": "example.com/mine@sha256:" + 64 * "0", "gpu": "example.com/mine:2-gpu"},
    )
    for template in templates(rendered(chart, served="gpu", packages=packages, image=image)):
        (fetch,) = template["spec"]["initContainers"]
        assert fetch["image"] == image["cpu"]
        assert fetch["envFrom"] == [{"secretRef": {"name": "bucket", "optional": True}}]
        assert fetch["resources"]["limits"]["ephemeral-storage"] == "96Gi"  # with what else a pod stores
        assert {"name": "packages", "emptyDir": {"sizeLimit": "90Gi"}} in template["spec"]["volumes"]


@pytest.mark.parametrize("served", ["cpu", "plain"])
def test_what_fetches_packages_has_the_certificates_of_the_values(served: str, chart: helm_python.Chart) -> None:
    authority = {"name": "SSL_CERT_FILE", "value": "/etc/company/ca.pem"}
    mount = {"name": "company", "mountPath": "/etc/company", "readOnly": True}
    more: Resource = {"env": [authority], "volumeMounts": [mount], "volumes": [{"name": "company", "emptyDir": {}}]}
    resources = rendered(chart, served=served, packages=STORE, **more)

    for template in templates(resources):
        (fetch,) = template["spec"]["initContainers"]
        assert authority in fetch["env"] and mount in fetch["volumeMounts"]
        assert {each["mountPath"] for each in fetch["volumeMounts"]} >= {"/models", "/etc/trifold-packages"}
    assert list(problems(list(resources.values()))) == []


def test_packages_come_from_the_claim_or_image_that_the_values_name(chart: helm_python.Chart) -> None:
    reference = "example.com/packages@sha256:" + 64 * "0"
    sources: list[tuple[Resource, Resource]] = [
        ({"from": "volume", "claim": "mine"}, {"persistentVolumeClaim": {"claimName": "mine", "readOnly": True}}),
        ({"from": "image", "image": reference}, {"image": {"reference": reference, "pullPolicy": "IfNotPresent"}}),
    ]
    for packages, volume in sources:
        for template in templates(rendered(chart, packages=packages)):
            assert {"name": "packages", **volume} in template["spec"]["volumes"]
