"""Packages made from nothing, in miniature: their chains, several at a time, and going on after a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from model.bundle import _processes, _result, make_packages
from model.commands.app import app
from model.evaluation.costs import MAX_COSTS
from model.export.runs import export_run
from model.package import Manifest, PackageError
from model.package.files import sha256_of
from model.package.manifest import Precision
from model.training.errors import DataError, RunError
from model.training.estimate import estimate_of
from model.training.recipe import Recipe
from model.training.recipes import PACKAGES, RECIPES, chain_of
from model.training.run import Run
from tests.conftest import is_gone
from tests.model.data_files import write_spam

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}  # a script finds what lies beside it, else


def recipe(package: str) -> Recipe:
    return RECIPES[PACKAGES[package]]


CHAINS = {
    "entail": [
        *("pretrain-encoder", "finetune-tag", "finetune-answer"),
        *("finetune-classify-entail", "finetune-classify-hypotheses"),
    ],
    "entities": ["pretrain-encoder", "finetune-tag"],
    "answers": ["pretrain-encoder", "finetune-tag", "finetune-answer"],
}
FIGURES = {
    "entail": {
        ("nli_mix/test_snli", "accuracy"),
        ("nli_mix/test_mnli_dev_matched", "accuracy"),
        ("ag_news_subset/test, 2 of it", "zero-shot accuracy into 4 labels"),
    },
    "entities": {
        (dataset, metric)
        for dataset in ("wikigold/every tenth from the sixth", "wnut17/test")
        for metric in ("entity F1", "precision", "recall")
    },
    "answers": {("squad11/dev", "F1"), ("squad11/dev", "exact match")},
}


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", list(FIGURES))
def test_packages_of_several_runs_are_made_by_one_command(name: str, data: Path, tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "packages"
    arguments = ["packages", "--data", data, "--runs", runs, "--out", out, "--only", name, "--no-compile"]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])

    assert result.exit_code == 0, result.output + repr(result.exception)
    chain = CHAINS[name]
    assert [step.name for step in chain_of(recipe(name))] == chain
    assert f"{name}: {chain[0]}, run 1 of {len(chain)}; left of all: unknown before the first steps" in result.output
    for number, step in enumerate(chain, start=1):
        assert f"{name}: {step}, run {number} of {len(chain)}; left of all: " in result.output
    manifest = Manifest.load(out / name)
    assert (manifest.name, manifest.labels) == (name, list(recipe(name).card.labels))
    assert {(figure.dataset, figure.metric) for figure in manifest.evaluation} == FIGURES[name]
    if name == "entail":
        assert manifest.entailment is not None and manifest.labels[manifest.entailment.entails] == "entailment"
        assert manifest.calibration is not None and manifest.calibration.rows == 12
        baselines = {(each.dataset, each.name): each.accuracy for each in manifest.baselines}
        assert baselines["nli_mix/test_snli", "always its commonest label"] == pytest.approx(1 / 3, abs=1e-3)
        assert ("nli_mix/test_mnli_dev_matched", "bag of words, linear") in baselines


@pytest.mark.usefixtures("tiny")
def test_a_package_is_not_made_again_of_the_same_weights(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "packages"
    make_packages(["entities"], data, runs, out, compile_model=False)
    exported: list[Path] = []

    def noted(run: Path, folder: Path, *, precision: Precision) -> Manifest:
        exported.append(folder)
        return export_run(run, folder, precision=precision)

    monkeypatch.setattr("model.bundle.export_run", noted)

    make_packages(["entities"], data, runs, out, compile_model=False)
    assert not exported

    graph = out / "entities" / "encoder.onnx"
    for damage in (graph.unlink, lambda: graph.write_bytes(b"cut short")):
        damage()
        make_packages(["entities"], data, runs, out, compile_model=False)
        assert len(exported) == 2 and Manifest.load(out / "entities").name == "entities"
        exported.clear()
    assert [path.name for path in out.iterdir()] == ["entities"]

    tagger = recipe("entities")
    exported.clear()
    monkeypatch.setitem(RECIPES, tagger.name, replace(tagger, card=replace(tagger.card, not_for="verses")))
    make_packages(["entities"], data, runs, out, compile_model=False)
    assert len(exported) == 2
    monkeypatch.setitem(RECIPES, tagger.name, tagger)
    make_packages(["entities"], data, runs, out, compile_model=False)
    exported.clear()

    (out / "entities" / "former.onnx").write_bytes(b"")
    listed = {**Manifest.load(out / "entities").sha256, "former.onnx": sha256_of(out / "entities" / "former.onnx")}
    Manifest.load(out / "entities").model_copy(update={"sha256": listed}).save(out / "entities")
    (runs / "entities-made-of").unlink()
    make_packages(["entities"], data, runs, out, compile_model=False)
    assert exported == [runs / "entities-int8", runs / "entities-float32"]
    assert not (out / "entities" / "former.onnx").exists()


@pytest.mark.usefixtures("tiny")
def test_a_package_that_int8_costs_too_much_takes_no_others_place(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "packages"
    monkeypatch.setitem(MAX_COSTS, "entity", -1.0)

    with pytest.raises(PackageError, match=r"entities-int8: wikigold.*, entity F1: int8 costs .*; at most -1; the"):
        make_packages(["entities"], data, runs, out, compile_model=False)
    assert not (out / "entities").exists() and Manifest.load(runs / "entities-int8").evaluation


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
from model.bundle import make_packages
from model.evaluation import classifiers
from model.sizes import SIZES
from model.training.recipe import Recipe
from model.training.recipes import RECIPES
from tests.conftest import TINY
SIZES["mini-encoder"] = replace(TINY["sentiment"], dropout=0.0)
classifiers.LEAST_FITTED = 2
for name, epochs in (("pretrain-encoder", 5), ("finetune-tag", 600), ("finetune-classify-spam", 2)):
    short = {"epochs": epochs, "batch_tokens": 256, "checkpoint_seconds": 0.5, "evaluate_every": 10**6}
    RECIPES[name] = replace(RECIPES[name], **short)
if __name__ == "__main__":
    data, runs, out = map(Path, sys.argv[1:4])
    jobs, names = int(sys.argv[4]), sys.argv[5:]
    make_packages(names, data, runs, out, compile_model=False, jobs=jobs, tell=lambda line: print(line, flush=True))
"""


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """The command of it; other processes import the file anew, and find the same small recipes."""
    path = tmp_path / "make_tiny_packages.py"
    path.write_text(SCRIPT)
    return [sys.executable, str(path)]


def test_runs_go_on_beside_one_another_each_after_what_it_begins_with(
    data: Path, tmp_path: Path, script: list[str]
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "packages"
    write_spam(data)
    Path(script[1]).write_text(SCRIPT.replace('("finetune-tag", 600)', '("finetune-tag", 2)'))
    command = [*script, *map(str, (data, runs, out)), "2", "entities", "spam"]

    made = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    assert made.returncode == 0, made.stderr
    told = [line for line in made.stdout.splitlines() if line.endswith(": done")]
    assert told[0] == "pretrain-encoder: done" and len(told) == 5
    for run, package in (("finetune-tag", "entities"), ("finetune-classify-spam", "spam")):
        assert told.index(f"{run}: done") < told.index(f"package {package}: done")
        assert Manifest.load(out / package).evaluation
    assert "3 of 3 runs are done; left of all: 0 min" in made.stdout


def test_if_one_run_fails_the_others_end_and_it_is_told(data: Path, tmp_path: Path, script: list[str]) -> None:
    runs = tmp_path / "runs"
    write_spam(data)
    loud = SCRIPT.replace('("finetune-tag", 600)', '("finetune-tag", 20_000)').replace(
        "    RECIPES[name]", '    short["learning_rate"] = 1e30 if "spam" in name else 1e-3\n    RECIPES[name]'
    )
    Path(script[1]).write_text(loud)
    command = [*script, *map(str, (data, runs, tmp_path / "packages")), "2", "entities", "spam"]

    made = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)

    told = rf"^model\.training\.errors\.RunError: {runs}/finetune-classify-spam: .* lower learning rate$"
    assert made.returncode == 1 and re.search(told, made.stderr, re.MULTILINE)
    assert "Exception in thread" not in made.stderr
    assert not Run(runs / "finetune-tag").figures.exists()  # it would have gone on for long


@pytest.mark.usefixtures("tiny")
def test_missing_data_is_told_before_any_run_begins(data: Path, tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "packages"
    estimate_of(chain_of(recipe("entities")), data, runs)  # counted once, and known since
    (data / "wnut17" / "train.conll.xz").unlink()

    with pytest.raises(DataError, match=r"wnut17/train\.conll\.xz: there is no such file"):
        make_packages(["entities"], data, runs, out, compile_model=False)
    assert not (runs / "pretrain-encoder").exists()


def test_a_process_that_is_killed_is_told_and_its_runs_are_named() -> None:
    with pytest.raises(RunError, match=r"one of first, second was killed, .* fewer --jobs"), _processes(2) as pool:
        _result(pool.submit(signal.raise_signal, signal.SIGKILL), ["first", "second"])


def test_if_the_command_is_ended_its_runs_end_with_it(data: Path, tmp_path: Path, script: list[str]) -> None:
    runs = tmp_path / "runs"
    command = [*script, *map(str, (data, runs, tmp_path / "packages")), "2", "entities"]
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not saved(Run(runs / "pretrain-encoder")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    children = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    trainings = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    process.terminate()

    assert process.wait() == -signal.SIGTERM and trainings
    deadline = time.monotonic() + 60
    while (left := [pid for pid in trainings if not is_gone(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def saved(run: Run) -> int:
    """Return the step of a run's checkpoint, 0 of none."""
    step: int = torch.load(run.checkpoint, weights_only=True)["step"] if run.checkpoint.exists() else 0
    return step


def test_what_was_killed_goes_on_where_it_stood(data: Path, tmp_path: Path, script: list[str]) -> None:
    runs, out = tmp_path / "runs", tmp_path / "packages"
    command = [*script, *map(str, (data, runs, out)), "1", "entities"]
    second = Run(runs / "finetune-tag")

    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (saved(second) and second.last_line()) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)  # in the middle of the second run
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

    killed_at = second.last_line()
    first = (runs / "pretrain-encoder" / "best.pt").read_bytes()
    about = second.config.read_text()
    assert killed_at is not None and not out.exists()
    assert saved(second) > 0
    result = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert "run 2 of 2; left of all: " in result.stdout and "unknown" not in result.stdout  # known by the first attempt
    assert (runs / "pretrain-encoder" / "best.pt").read_bytes() == first  # not trained again
    assert second.config.read_text() == about  # nor begun again
    steps = [json.loads(line)["step"] for line in second.log.read_text().splitlines() if "loss" in json.loads(line)]
    assert steps == sorted(set(steps)) and killed_at["step"] in steps
    training = Manifest.load(out / "entities").training
    assert training is not None and training.data == second.decisions().data != {}
