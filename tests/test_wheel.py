"""What `pip install trifold-server` brings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.notice import expression

ROOT = Path(__file__).parent.parent
FOLDERS = ("model", "service")
TERMS = ("LICENSE", "NOTICE", "model/NOTICE-STORYBOOKS")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built of a copy, as building leaves files, and not compressed, as that takes long."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", *TERMS):
        shutil.copy(ROOT / name, folder / "source" / name)
    code = "from setuptools.build_meta import build_wheel as b; b('..', {'--build-option': '--compression=stored'})"
    subprocess.run([sys.executable, "-c", code], cwd=folder / "source", check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def is_of_readme(path: Path) -> bool:
    """Tell whether a file is a picture of a README beside it."""
    return path.suffix in {".png", ".svg"} and (path.parent / "README.md").exists()


def test_the_wheel_has_all_of_the_code_and_the_bundled_models(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(FOLDERS)}
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
        is_executable = archive.getinfo("service/haproxy.sh").external_attr >> 16 & 0o111
    there = {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md" and not is_of_readme(path)
    }

    assert packed == there
    assert is_executable
    terms = [f"License-Expression: {expression(ROOT / 'model' / 'packages')}", *(f"License-File: {it}" for it in TERMS)]
    assert {*terms} <= {*metadata.split("\n")}


def test_what_is_installed_finds_its_models(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = """
from service.settings import Settings
from service.startup import check_start
settings = Settings.read()
check_start(settings, settings.models())
print(*(model.package for model in settings.models()), sep="\\n")
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    assert {Path(line).parent for line in done.stdout.splitlines()} == {tmp_path / "model" / "packages"}
    assert len(done.stdout.splitlines()) == 10
