"""Chains that start from packages, in miniature."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from model.bundle import make_packages
from model.package import Manifest, PackageError
from model.training.errors import RunError


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_start_from_packages_in_place_of_the_runs_that_made_them(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr("model.bundle._processes", ThreadPoolExecutor)  # other processes would not find tiny recipes
    packages, runs, out = tmp_path / "before", tmp_path / "runs", tmp_path / "packages"
    make_packages(["entities", "answers"], data, tmp_path / "others", packages, compile_model=False)
    lines: list[str] = []

    for _ in range(2):  # the second time everything is there
        make_packages(
            ["answers"], data, runs, out, start_from=packages, compile_model=False, jobs=jobs, tell=lines.append
        )

    assert not (runs / "pretrain-encoder").exists()
    began = json.loads((runs / "finetune-tag" / "config.json").read_text())["unpacked_from"]
    assert began["package"] == "entities"  # not what is to be made itself
    made, earlier = Manifest.load(out / "answers"), Manifest.load(packages / "answers")
    assert made.training_data == earlier.training_data
    assert made.training is not None and earlier.training is not None
    assert made.training.minutes == pytest.approx(earlier.training.minutes, abs=0.1)


@pytest.mark.usefixtures("tiny")
def test_no_run_starts_from_what_is_not_a_package_of_its_recipe(data: Path, tmp_path: Path) -> None:
    packages, runs = tmp_path / "before", tmp_path / "runs"
    make_packages(["entities"], data, tmp_path / "others", packages, compile_model=False)

    def make() -> None:
        make_packages(["answers"], data, runs, tmp_path / "out", start_from=packages, compile_model=False)

    (runs / "finetune-tag").mkdir(parents=True)
    (runs / "finetune-tag" / "config.json").write_text("{}")
    with pytest.raises(RunError, match=r"finetune-tag: another run is there than .*entities; remove it"):
        make()
    shutil.rmtree(runs)
    manifest = Manifest.load(packages / "entities")
    assert manifest.training is not None
    training = manifest.training.model_copy(update={"recipe": "finetune-classify-topics"})
    manifest.model_copy(update={"training": training}).save(packages / "entities")
    with pytest.raises(PackageError, match="finetune-tag did not make it"):
        make()
