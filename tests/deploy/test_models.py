"""The examples of deploy/models.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import helm_python
import pytest
import yaml

from deploy.chart import CHART
from deploy.kustomize import KUBERNETES, can_render, compose, rendered
from model.storage.listing import read_list

PAGE = (KUBERNETES.parent / "models.md").read_text(encoding="utf-8")


def example(first: str) -> str:
    """Return the page's block that begins so."""
    (found,) = (block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if block.startswith(first))
    return str(found)


def test_the_list_of_packages_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "packages.yaml").write_text(example("packages:"))

    ((name, package),) = read_list(tmp_path / "packages.yaml")

    assert (name, package.address.scheme) == ("sentiment", "s3")


@pytest.mark.skipif(not can_render(), reason="needs kubectl or kustomize to render the components")
def test_the_overlay_that_fetches_packages_can_be_rendered(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(KUBERNETES, tmp_path / "kubernetes")) / "install" / "mine"
    copy.mkdir()
    (copy / "kustomization.yaml").write_text(example("apiVersion: kustomize"))
    (copy / "packages.yaml").write_text(example("packages:"))
    (copy / "models.yaml").write_text("models: [{package: /models/sentiment}]")
    shutil.copy(KUBERNETES / "components" / "cpu" / "serve-config.yaml", copy)

    resources = list(yaml.safe_load_all(rendered(copy)))

    lists = {each["metadata"]["name"]: each["data"] for each in resources if each["kind"] == "ConfigMap"}
    assert {name: [*data] for name, data in lists.items()} == {
        "trifold-models": ["models.yaml"],
        "trifold-packages": ["packages.yaml"],
    }


def test_the_values_of_the_chart_have_the_same_list(tmp_path: Path) -> None:
    chart, values = helm_python.Chart.load(CHART), yaml.safe_load(example("# values.yaml"))
    chart.validate_schema(chart.merge_values(values))
    made = chart.render(values, name="trifold", namespace="trifold")["trifold/templates/resources.yaml"]
    (listing,) = re.findall(r"packages\.yaml: (.+)", made)

    for name, text in (("ours", example("packages:")), ("chart", yaml.safe_load(listing))):
        (tmp_path / name).write_text(text)
    assert read_list(tmp_path / "ours") == read_list(tmp_path / "chart")


IDENTITY = "169.254.170.23", "fd00:ec2::23"  # of EKS Pod Identity's agent, as AWS gives them


@pytest.mark.skipif(not can_render(), reason="needs kubectl or kustomize to render the components")
def test_a_pod_that_fetches_from_s3_can_ask_eks_for_its_credentials() -> None:
    resources = compose("plain", ["models/store", "network-policy/eks", "network-policy/store"])
    rules = [rule for each in resources if each["kind"] == "NetworkPolicy" for rule in each["spec"].get("egress", [])]

    assert "Pod Identity" in PAGE and all(address in PAGE for address in IDENTITY)
    blocks = [{"ipBlock": {"cidr": f"{address}/{128 if ':' in address else 32}"}} for address in IDENTITY]
    assert {"to": blocks, "ports": [{"port": 80}]} in rules
