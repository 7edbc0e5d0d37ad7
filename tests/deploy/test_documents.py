from __future__ import annotations

import os
import re
import subprocess
from typing import Any

import helm_python
import pytest
import yaml

from deploy.chart import CHART
from deploy.generate import ROOT
from deploy.kustomize import KUBERNETES, can_render, compose

NAMES = ("README.md", "reference.md", "from-nothing.md", "models.md")
DOCUMENTS = {name: (ROOT / "deploy" / name).read_text() for name in NAMES}


def commands(text: str) -> list[str]:
    """Return a document's commands, those over several lines as one."""
    lines = re.findall(r"^    (.+)$", text.replace("\\\n", " "), re.M)
    return [re.sub(r"\s+", " ", line) for line in lines]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_a_document_names_are_there(name: str) -> None:
    named = set(re.findall(r"\b(?:(?:deploy|model|loadtests)/[\w./-]*\w|service/\w+\.\w+)", DOCUMENTS[name]))
    missing = {path for path in named if not (ROOT / path).exists()}
    linked = set(re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", DOCUMENTS[name]))

    assert missing == set()
    assert {link for link in linked if not (ROOT / "deploy" / link).exists()} == set()


def seds() -> list[str]:
    found = {
        each.partition(" |")[0] for text in DOCUMENTS.values() for each in commands(text) if each.startswith("sed")
    }
    assert len(found) >= 2
    return sorted(found)


@pytest.mark.parametrize("command", seds())
def test_a_sed_puts_an_image_in_the_place_of_the_one_that_manifests_name(command: str) -> None:
    environment = {**os.environ, "IMAGE": "example.com/mine", "VERSION": "7.1"}
    made = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert set(re.findall(r"image: (\S+/(?:trifold|mine)\S*)", made)) == {"example.com/mine:7.1-cpu"}


PARTS = {"gpu/group", "models/mount"}  # of other components


def test_the_reference_has_every_component() -> None:
    table = DOCUMENTS["reference.md"].partition("| component |")[2].partition("\n\n")[0]
    told = set()
    for row in re.findall(r"^\| (`.+?) \|", table, re.M):
        first, *others = re.findall(r"`([^`]+)`", row)
        told |= {first, *(each if each[0] != "/" else first.rpartition("/")[0] + each for each in others)}
    folders = (path.parent for path in (KUBERNETES / "components").rglob("kustomization.yaml"))

    assert told == {str(folder.relative_to(KUBERNETES / "components")) for folder in folders} - PARTS


def charts() -> list[str]:
    found = [each for text in DOCUMENTS.values() for each in commands(text) if "deploy/helm/trifold" in each]
    assert len(found) >= 4
    return found


@pytest.mark.parametrize("command", charts())
def test_the_chart_takes_the_values_of_a_command(command: str) -> None:
    chart, values = helm_python.Chart.load(CHART), dict[str, Any]()
    for given in re.findall(r"--set (\S+)", command):
        for each, value in helm_python.parse_set_string(given).items():
            values[each] = {**values.get(each, {}), **value} if isinstance(value, dict) else value
    values.get("image", {}).update(cpu="example.com/trifold:1-cpu")

    chart.validate_schema(chart.merge_values(values))
    made = chart.render(values, name="trifold", namespace="trifold")
    assert "kind: RayService" in made["trifold/templates/resources.yaml"]


@pytest.mark.skipif(not can_render(), reason="needs kubectl or kustomize to render the components")
def test_the_composition_of_the_reference_is_one() -> None:
    sample = re.search(r"# my-composition/kustomization.yaml\n(.*?)```", DOCUMENTS["reference.md"], re.S)
    assert sample
    kustomization = yaml.safe_load(sample[1])
    prefix = "../deploy/kubernetes/"
    (base,) = (each.removeprefix(prefix) for each in kustomization["resources"])
    components = [each.removeprefix(f"{prefix}components/") for each in kustomization["components"]]

    assert {each["kind"] for each in compose(base, components)} >= {"RayService", "StatefulSet", "NetworkPolicy"}
