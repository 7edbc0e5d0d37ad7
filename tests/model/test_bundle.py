"""Packages made from nothing, in miniature: their chains, what is left of all, and going on after a kill."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from model.bundle import _processes, _result, make_packages
from model.commands.app import app
from model.evaluation import classifiers
from model.evaluation.costs import MAX_COSTS
from model.export.runs import export_run
from model.package import Manifest, PackageError
from model.package.files import sha256_of
from model.package.manifest import Precision
from model.sizes import SIZES
from model.training.errors import DataError, RunError
from model.training.estimate import Estimate, estimate_of
from model.training.readers import VALIDATION_ARTICLES
from model.training.recipe import Recipe
from model.training.recipes import PACKAGES, RECIPES, chain_of
from model.training.run import Run
from tests.conftest import TEXTS, TINY, is_gone
from tests.model.data_files import write_named_texts, write_spam, write_xz

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}  # a script finds what lies beside it, else
CONTEXT = "Dan loves ice cream. The little dog plays in the garden."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What the chains of entail, entities and answers read."""
    folder = tmp_path / "data"
    asked = [{"question": "Who loves ice cream?", "answers": [{"text": "Dan", "answer_start": 0}]}]
    articles = [
        {"title": f"article {number}", "context": CONTEXT, "qas": asked} for number in range(VALIDATION_ARTICLES + 6)
    ]
    for split in ("train", "dev"):
        write_xz(folder / "squad11" / f"{split}.jsonl.xz", "\n".join(map(json.dumps, articles)))
    for split in ("train", "validation"):
        write_xz(folder / "wikitext2" / f"{split}.txt.xz", f" = One = \n {TEXTS[0]} \n = Two = \n {TEXTS[1]} \n")
        write_xz(folder / "books_pd" / f"{split}.jsonl.xz", json.dumps({"text": TEXTS[1] * 3, "group": "children"}))
        for name in ("openstax_ccby", "tinystories_subset"):
            write_xz(folder / name / f"{split}.jsonl.xz", json.dumps({"text": TEXTS[0]}))
    write_xz(folder / "storybooks_ccby" / "all.jsonl.xz", json.dumps({"text": TEXTS[0]}))
    pairs = [("A dog plays.", "An animal plays."), ("A dog plays.", "It is red."), ("A dog plays.", "No dog plays.")]
    rows = [
        f"{one}\t{other}\t{label}\tcad\n"
        for (one, other), label in zip(pairs, ("entailment", "neutral", "contradiction"), strict=True)
    ]
    for split in ("train", "validation", "test_snli", "test_mnli_dev_matched"):
        write_xz(folder / "nli_mix" / f"{split}.tsv.xz", "premise\thypothesis\tlabel\tsource\n" + "".join(rows * 4))
    for split in ("train", "validation"):
        write_named_texts(folder, split)
    news = "World\tWar\tIt goes on.\nSports\tGoal\tThey won.\n"
    write_xz(folder / "ag_news_subset" / "test.tsv.xz", f"label\ttitle\tdescription\n{news}")
    sentence = "Dan\tB-PER\nloves\tO\nParis\tB-LOC\n\n"
    wikipedia = "".join(f"In\tO\n{year}\tO\n{sentence}" for year in range(1900, 1920))
    write_xz(folder / "wikigold" / "all.conll.xz", wikipedia)
    for section in "abeg":
        write_xz(folder / "btc" / f"section_{section}.conll.xz", sentence)
    for split in ("train", "test"):
        emerging = sentence.replace("PER", "person").replace("LOC", "location")
        write_xz(folder / "wnut17" / f"{split}.conll.xz", emerging)
    return folder


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make encoders tiny, their runs short, and a temperature of a few rows good enough."""
    monkeypatch.setattr(classifiers, "LEAST_FITTED", 2)
    monkeypatch.setitem(SIZES, "mini-encoder", replace(TINY["sentiment"], dropout=0.0))
    for name in {step.name for package in ("entail", "entities", "answers") for step in chain_of(recipe(package))}:
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=2))


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


def test_what_is_left_is_what_was_counted_at_the_rate_of_what_was_done() -> None:
    estimate = Estimate({"first": 100.0, "second": 300.0})
    assert estimate.left() is None and "unknown" in estimate.told()

    estimate.note("first", 0.5, 60.0)  # 50 in a minute
    assert estimate.left() == pytest.approx((50 + 300) / 50 * 60)
    estimate.note("first", 1.0, 120.0)
    estimate.note("second", 1 / 3, 240.0)  # 200 in six minutes, slower than before
    assert estimate.left() == pytest.approx(200 / 200 * 360)
    assert estimate.told() == "6 min"
    assert Estimate({"only": 100.0}, {"only": 60.0}, {"only": 0.01}).told() == "1 h 39 min"


def test_runs_beside_one_another_are_through_sooner() -> None:
    estimate = Estimate({"one": 1e12, "two": 1e12})
    assert estimate.told() == "unknown before the first steps"
    estimate.note("one", 0.5, 3600.0)

    assert (estimate.told(), estimate.told(beside=2), estimate.told(beside=4)) == ("3 h 00 min", "1 h 30 min", "45 min")


@pytest.mark.usefixtures("tiny")
def test_runs_are_counted_once_and_anew_when_their_recipe_is_another(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, chain = tmp_path / "runs", chain_of(recipe("entities"))
    first = estimate_of(chain, data, runs)
    twice = replace(chain[-1], epochs=4)

    again = estimate_of([*chain[:-1], twice], data, runs)

    unchanged = [step.name for step in chain[:-1]]
    assert [again.flops[name] for name in unchanged] == [first.flops[name] for name in unchanged]
    assert again.flops[twice.name] == pytest.approx(2 * first.flops[twice.name], rel=0.1)
    monkeypatch.setattr("model.training.estimate.Training", None)  # nothing is counted a second time
    assert estimate_of([*chain[:-1], twice], data, runs) == again

    (read,) = (data / "wikigold").iterdir()
    read.write_bytes(read.read_bytes() * 2)  # of other data the count is another
    with pytest.raises(TypeError):
        estimate_of([*chain[:-1], twice], data, runs)


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
    assert Manifest.load(out / "entities").training is not None
