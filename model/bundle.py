"""Making packages from nothing: each one's chain of runs, both exports, the figures."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from model.evaluation.costs import costs
from model.evaluation.evaluate import evaluate
from model.export.runs import export_run
from model.hub.cache import exporter_version
from model.package import Manifest, PackageError
from model.package.files import sha256_of
from model.package.place import check_place, take_place
from model.processes import end_with_the_parent, pool_of
from model.shorter_chains import Chains, starting_from
from model.training.errors import RunError
from model.training.estimate import Estimate, estimate_of
from model.training.loop import Report, Training, train
from model.training.recipe import Recipe
from model.training.recipes import PACKAGES, RECIPES, chain_of
from model.training.run import Run

TOLD_EVERY = 60.0  # seconds between lines on how far runs beside one another are
Tell = Callable[[str], None]


def make_packages(
    names: Sequence[str],
    data: Path,
    runs: Path,
    out: Path,
    *,
    start_from: Path | None = None,
    compile_model: bool,
    jobs: int = 1,
    tell: Tell = lambda _line: None,
) -> None:
    """Train, export and evaluate packages by name into folders under `out`; what was interrupted is resumed.

    Every recipe's run is a folder under `runs`, and so are its packages in float32 and int8, until they are compared.
    `start_from` is a folder of packages that take the place of the runs that made them (`model.shorter_chains`).
    `jobs` runs go on at a time, each in a process of its own if there are more than one: a GPU has room for several.
    `tell` is given lines on how far all of it is. Raises `PackageError` at the end where int8 costs one more than it
    may; it stays under `runs`, and those in `out` are as they were.
    """
    chains: Chains = {name: chain_of(RECIPES[PACKAGES[name]]) for name in names}
    for name in chains:
        check_place(out / name)  # before hours of training
    if start_from is not None:
        chains = starting_from(start_from, chains, runs)
    steps = list({step.name: step for chain in chains.values() for step in chain}.values())
    tell(f"{len(chains)} packages, {len(steps)} runs; counting what they take")
    estimate = estimate_of(steps, data, runs)
    if jobs == 1:
        too_dear = _one_after_another(chains, data, runs, out, estimate, tell, compile_model=compile_model)
    else:
        too_dear = _beside_one_another(chains, data, runs, out, estimate, tell, jobs, compile_model=compile_model)
    if too_dear:
        raise PackageError("; ".join(too_dear))


def _one_after_another(
    chains: Chains, data: Path, runs: Path, out: Path, estimate: Estimate, tell: Tell, *, compile_model: bool
) -> list[str]:
    """Make the packages in this process, with a progress bar; return what int8 costs too much, in words."""

    def report(training: Training) -> Mapping[str, str]:
        estimate.note(training.recipe.name, training.step / training.total_steps, training.seconds)
        return {"left of all": estimate.told()}

    trained: set[str] = set()
    too_dear: list[str] = []
    for name, chain in chains.items():
        for step in chain:
            if step.name not in trained:
                run = f"run {len(trained) + 1} of {len(estimate.flops)}"
                tell(f"{name}: {step.name}, {run}; left of all: {estimate.told()}")
                _train(step.name, data, runs, compile_model=compile_model, report=report)
                last = Run(runs / step.name).last_line()
                estimate.note(step.name, 1.0, last["seconds"] if last else 0.0)
                trained.add(step.name)
        too_dear += make_package(chain[-1], data, runs, out / name)
    return too_dear


def _beside_one_another(
    chains: Chains, data: Path, runs: Path, out: Path, estimate: Estimate, tell: Tell, jobs: int, *, compile_model: bool
) -> list[str]:
    """Make the packages in up to `jobs` processes at a time, a run as soon as what it begins with is there.

    Of those that could begin, first what most is to follow, as all else can go on beside that.
    """
    waiting = {step.name: step for chain in chains.values() for step in chain}
    makes = {chain[-1].name: name for name, chain in chains.items()}
    follows = _flops_from(chains, estimate)
    running: dict[Future[Any], str] = {}
    trained: set[str] = set()
    to_make: list[str] = []  # packages, by their last run
    too_dear: list[str] = []
    with _processes(jobs) as pool:
        while waiting or to_make or running:
            untrained = estimate.flops.keys() - trained
            ready = [step.name for step in waiting.values() if step.starts_from not in untrained]
            for name in sorted(ready, key=follows.__getitem__, reverse=True)[: jobs - len(running)]:
                running[pool.submit(_train, name, data, runs, compile_model=compile_model)] = name
                del waiting[name]
            for name in to_make[: jobs - len(running)]:  # nothing waits for it
                running[pool.submit(_make_named, name, data, runs, out / makes[name])] = f"package {makes[name]}"
                to_make.remove(name)
            for future in wait(running, TOLD_EVERY, FIRST_COMPLETED).done:
                ended = running.pop(future)
                too_dear += _result(future, [ended, *running.values()])
                tell(f"{ended}: done")
                if ended in RECIPES:
                    trained.add(ended)
                if ended in makes:
                    to_make.append(ended)
            estimate.look(runs)
            unfinished = sum(chain[-1].name not in trained for chain in chains.values())
            left = estimate.told(beside=max(1, min(jobs, unfinished)))
            tell(f"{len(trained)} of {len(estimate.flops)} runs are done; left of all: {left}")
    return too_dear


def _flops_from(chains: Chains, estimate: Estimate) -> dict[str, float]:
    """Return, for each run, the FLOPs of itself and the longest chain of those that begin with it, one by one."""
    flops: dict[str, float] = {}
    for chain in chains.values():
        total = 0.0
        for step in reversed(chain):
            total += estimate.flops[step.name]
            flops[step.name] = max(flops.get(step.name, 0.0), total)
    return flops


def _result(future: Future[Any], running: Sequence[str]) -> list[str]:
    """Return what a task returned; raises `RunError` where a process was killed, by which all of them end."""
    try:
        return future.result() or []
    except BrokenProcessPool:
        raise RunError(
            f"a process that made one of {', '.join(running)} was killed, perhaps as the memory was full; the same "
            "command resumes them, and fewer --jobs need less memory"
        ) from None


def _begin(threads: int) -> None:
    """Prepare a process of the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent ends this one
    torch.set_num_threads(threads)
    end_with_the_parent()


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes that share the cores, a new one for each task; an interrupted run is resumed."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    before = os.environ.get("TQDM_DISABLE")
    os.environ["TQDM_DISABLE"] = "1"  # several bars would overwrite one another; read when a process begins
    try:
        with pool_of(jobs, _begin, threads, tasks_of_each=1) as pool:
            yield pool
    finally:
        del os.environ["TQDM_DISABLE"]
        if before is not None:
            os.environ["TQDM_DISABLE"] = before


def _make_named(name: str, data: Path, runs: Path, package: Path) -> list[str]:
    """Make the package of a recipe's run; other processes are told names, as recipes have functions."""
    return make_package(RECIPES[name], data, runs, package)


def _train(name: str, data: Path, runs: Path, *, compile_model: bool, report: Report | None = None) -> None:
    """Train a recipe into its folder under `runs`, from the run that it begins with."""
    recipe = RECIPES[name]
    start = None if recipe.starts_from is None else runs / recipe.starts_from
    train(recipe, data, runs / name, start_from=start, compile_model=compile_model, report=report)


def make_package(recipe: Recipe, data: Path, runs: Path, package: Path) -> list[str]:
    """Export a recipe's run in int8, and write its figures beside those of float32; not again if it was made of it.

    Where int8 costs more than it may nothing is put into `package`; returns what it costs, in words.
    """
    made_of, sources = runs / f"{package.name}-made-of", _hash_of_sources(recipe, Run(runs / recipe.name).weights)
    if made_of.exists() and made_of.read_text() == f"{sources} {_hash_of(package)}":
        return []
    made, reference = runs / f"{package.name}-int8", runs / f"{package.name}-float32"
    export_run(runs / recipe.name, made, precision="int8")
    export_run(runs / recipe.name, reference, precision="float32")
    dear = [cost for cost in costs(evaluate(made, data, reference=reference)) if cost.is_too_much]
    if dear:
        return [f"{made}: {cost.told}; the package is left there" for cost in dear]
    _install(made, package)
    made_of.write_text(f"{sources} {_hash_of(package)}")
    return []


def _hash_of_sources(recipe: Recipe, weights: Path) -> str:
    """Return a hash of all that a package is made of: weights, what its card says, and the code that exports."""
    card = json.dumps(asdict(recipe.card), sort_keys=True, default=lambda part: part.model_dump())
    sources = f"{sha256_of(weights)} {card} {exporter_version()}"
    return hashlib.sha256(sources.encode()).hexdigest()


def _hash_of(package: Path) -> str:
    """Return a hash of all files of a package but its manifest, which gets figures later; nothing of a broken one."""
    try:
        files = Manifest.load(package).sha256
    except PackageError:
        return ""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _install(made: Path, package: Path) -> None:
    """Put a package in another's place; all of it is copied beside before any file of the other goes."""
    check_place(package)
    package.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=package.parent, prefix=f".{package.name}-") as beside:
        take_place(Path(shutil.copytree(made, Path(beside) / "made")), package)
