"""Facts about the tree that a reader relies on."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from service import __version__

ROOT = Path(__file__).parent.parent
COMPOSED = ("service.app", "service.replica", "service.remote")


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def files_that_import(package: str, folder: str) -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*.py")
        if any(name == package or name.startswith(f"{package}.") for name in imports_of(path))
    }


def test_serving_needs_of_the_model_only_its_package() -> None:
    for path in (ROOT / "service").rglob("*.py"):
        of_model = {name for name in imports_of(path) if name == "model" or name.startswith("model.")}
        if path == ROOT / "service" / "__init__.py":
            assert of_model == {"model"}  # it alone: see the next test
        else:
            assert all(name.startswith("model.package") for name in of_model), path


def test_the_version_is_told_where_nothing_is_installed() -> None:
    """As by the workflow of a release, and by pip while it builds a wheel."""
    command = [sys.executable, "-S", "-c", "import service; print(service.__version__)"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)

    assert told.stdout == f"{__version__}\n"


@pytest.mark.parametrize("library", ["torch", "onnxruntime", "ray"])
def test_the_package_contract_is_free_of(library: str) -> None:
    assert files_that_import(library, "model/package") == set()


def test_the_package_contract_needs_of_the_model_only_its_configuration() -> None:
    of_model = {
        name
        for path in (ROOT / "model" / "package").rglob("*.py")
        for name in imports_of(path)
        if name.startswith("model.") and not name.startswith("model.package")
    }

    assert of_model == {"model.checked", "model.config"}  # serving needs no more of it
    for file, needed in (("config.py", {"model.checked"}), ("checked.py", set())):
        found = {name for name in imports_of(ROOT / "model" / file) if name.startswith(("model", "torch"))}
        assert found == needed


def test_serving_is_free_of_torch() -> None:
    assert files_that_import("torch", "service") == set()


@pytest.mark.parametrize("folder", ["model/hub", "model/storage", "model/commands"])
def test_finding_a_model_is_free_of_torch(folder: str) -> None:
    assert files_that_import("torch", folder) == set()


def test_of_the_model_only_the_command_line_knows_of_the_service() -> None:
    assert {path.rpartition("/")[0] for path in files_that_import("service", "model")} == {"model/commands"}


def test_ray_is_imported_where_the_service_is_composed() -> None:
    assert files_that_import("ray", "service") == {
        "service/app.py",
        "service/remote.py",
        "service/replica.py",
        "service/ray_processes.py",
        "service/__main__.py",
    }


def test_onnx_runtime_is_imported_where_graphs_are_opened_alone() -> None:
    opening = {"service/engine/session.py", "service/engine/providers.py"}
    assert files_that_import("onnxruntime", "service") == opening
    assert files_that_import("onnxruntime", "model") == {"model/export/naive.py"}


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        (
            "service/engine",
            ["service.tasks", "service.api", *COMPOSED, "service.schemas", "service.errors", "fastapi"],
        ),
        ("service/tasks", ["service.api", *COMPOSED, "fastapi"]),
        ("service/api", [*COMPOSED, "service.engine"]),
        ("model/layers", ["model.architectures", "model.training", "model.export", "model.evaluation"]),
        ("model/architectures", ["model.training", "model.export", "model.evaluation"]),
        ("model/export", ["model.evaluation"]),
    ],
)
def test_imports_run_downwards(lower: str, higher: list[str]) -> None:
    for name in higher:
        assert files_that_import(name, lower) == set(), f"{lower} reaches up to {name}"


def test_only_the_settings_read_the_environment() -> None:
    reads = re.compile(r"os\.environ(?!\.setdefault|\.update|\[\"\w+\"\] = )|os\.getenv")
    readers = {
        str(path.relative_to(ROOT)) for path in (ROOT / "service").rglob("*.py") if reads.search(path.read_text())
    }

    assert readers == {"service/settings.py", "service/healthcheck.py"}  # a probe has no time for the other


NAMED = re.compile(r"`?([\w/.-]+\.md)`?,? \(?\*([^*\n]+)\*")  # `service/README.md`, *Time*
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part in {"node_modules", "runs"} or part.startswith(".venv") for part in path.parts)
)


def anchors(document: Path) -> set[str]:
    """Return what links may name of a document: its headings in small letters, with dashes, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for name, anchor in LINK.findall(document.read_text(encoding="utf-8")):
        target = document.parent / name if name else document
        assert target.exists(), f"{name} is not there"
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{name}#{anchor} is no heading"


def test_parts_that_are_named_are_there() -> None:
    named = [
        (document, *found) for document in DOCUMENTS for found in NAMED.findall(document.read_text(encoding="utf-8"))
    ]

    assert named
    for document, name, title in named:
        files = [path for path in (document.parent / name, ROOT / name) if path.exists()]
        part = re.compile(rf"^(#+ |.*\*\*){re.escape(title)}", re.MULTILINE)
        assert any(part.search(path.read_text(encoding="utf-8")) for path in files), f"{document}: {name}, {title}"


def test_every_dependency_has_its_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text().split("[build-system]")[0].splitlines()
    dependencies = [line for line in lines if re.match(r'\s+"[a-z]', line)]

    assert dependencies
    assert all("# " in line for line in dependencies if "trifold-server[" not in line)


def test_a_gpt_is_as_long_to_read_as_the_readme_says() -> None:
    text = (ROOT / "model" / "README.md").read_text(encoding="utf-8")
    told = re.search(r"a GPT is five files here, (\d+) lines, of which (\d+) are not blank: (.*?)\. ", text, re.DOTALL)
    assert told is not None
    files = dict(re.findall(r"`(\S+\.py)` \((\d+)\)", told[3]))
    lines = {name: (ROOT / "model" / name).read_text(encoding="utf-8").splitlines() for name in files}

    assert {name: len(found) for name, found in lines.items()} == {name: int(count) for name, count in files.items()}
    written = [line for line in chain.from_iterable(lines.values()) if line]
    assert (len(files), sum(map(len, lines.values())), len(written)) == (5, int(told[1]), int(told[2]))


def test_the_tree_in_the_readme_is_the_tree_on_disk() -> None:
    block = re.search(r"```\n(model/.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    folder, told = "", set()
    for line in block.group(1).splitlines():
        name = line.split()[0]
        folder = name if not line.startswith(" ") else folder
        path = ROOT / (name if name == folder else folder + name)
        assert path.exists(), path
        told.add(path)

    packages = {path.parent for top in ("model", "service") for path in (ROOT / top).glob("*/__init__.py")}
    assert packages and packages <= told


@pytest.mark.parametrize("module", ["service.engine.session", "model.export.verify"])
def test_onnx_runtime_is_imported_with_its_telemetry_off(module: str) -> None:
    code = f"import os, {module}, sys; print('onnxruntime' in sys.modules, os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert said.stdout.split() == ["True", "1"]
