"""Making packages from nothing: each one's chain of runs, both exports, the figures."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from model.evaluation.costs import costs
from model.evaluation.evaluate import evaluate
from model.export.export import export_run
from model.package import Manifest, PackageError
from model.package.manifest import sha256_of
from model.package.place import check_place, take_place
from model.training.estimate import Estimate, estimate_of
from model.training.loop import Training, train
from model.training.recipe import Recipe
from model.training.recipes import PACKAGES, RECIPES, chain_of
from model.training.run import Run


def make_packages(
    names: Sequence[str],
    data: Path,
    runs: Path,
    out: Path,
    *,
    compile_model: bool,
    tell: Callable[[str], None] = lambda _line: None,
) -> None:
    """Train, export and evaluate packages by name into folders under `out`; what was interrupted is resumed.

    Every recipe's run is a folder under `runs`, and so are its packages in float32 and int8, until they are compared.
    `tell` is given lines on how far all of it is. Raises `PackageError` at the end where int8 costs one more than it
    may; it stays under `runs`, and those in `out` are as they were.
    """
    chains = {name: chain_of(RECIPES[PACKAGES[name]]) for name in names}
    steps = list({step.name: step for chain in chains.values() for step in chain}.values())
    tell(f"{len(names)} packages, {len(steps)} runs; counting what they take")
    estimate = estimate_of(steps, data, runs)
    trained: set[str] = set()
    too_dear: list[str] = []
    for name, chain in chains.items():
        start: Path | None = None
        for step in chain:
            if step.name not in trained:
                tell(f"{name}: {step.name}, run {len(trained) + 1} of {len(steps)}; left of all: {estimate.told()}")
                _train(step, data, runs, start, estimate, compile_model=compile_model)
                trained.add(step.name)
            start = runs / step.name
        too_dear += make_package(chain[-1], data, runs, out / name)
    if too_dear:
        raise PackageError("; ".join(too_dear))


def _train(
    recipe: Recipe, data: Path, runs: Path, start: Path | None, estimate: Estimate, *, compile_model: bool
) -> None:
    def report(training: Training) -> Mapping[str, str]:
        estimate.note(recipe.name, training.step / training.total_steps, training.seconds)
        return {"left of all": estimate.told()}

    folder = runs / recipe.name
    train(recipe, data, folder, start_from=start, compile_model=compile_model, report=report)
    last = Run(folder).last_line()
    estimate.note(recipe.name, 1.0, last["seconds"] if last else 0.0)


def make_package(recipe: Recipe, data: Path, runs: Path, package: Path) -> list[str]:
    """Export a recipe's run in int8, and write its figures beside those of float32; not again if it was made of it.

    Where int8 costs more than it may nothing is put into `package`; returns what it costs, in words.
    """
    made_of, weights = runs / f"{package.name}-made-of", sha256_of(Run(runs / recipe.name).weights)
    if made_of.exists() and made_of.read_text() == f"{weights} {_hash_of(package)}":
        return []
    made, reference = runs / f"{package.name}-int8", runs / f"{package.name}-float32"
    export_run(runs / recipe.name, made, precision="int8")
    export_run(runs / recipe.name, reference, precision="float32")
    dear = [cost for cost in costs(evaluate(made, data, reference=reference)) if cost.is_too_much]
    if dear:
        return [f"{made}: {cost.told}; the package is left there" for cost in dear]
    _install(made, package)
    made_of.write_text(f"{weights} {_hash_of(package)}")
    return []


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
