"""Making the bundled packages from nothing: each one's chain of runs, both exports, the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model.export.evaluate import evaluate
from model.export.export import export_run
from model.training.loop import train
from model.training.recipe import Recipe
from model.training.recipes import PACKAGES, RECIPES, chain_of


def make_packages(names: Sequence[str], data: Path, runs: Path, out: Path, *, compile_model: bool) -> None:
    """Train, export and evaluate packages by name into folders under `out`; what was interrupted is resumed.

    Every recipe's run is a folder under `runs`, and so are the float32 packages that int8 is compared with.
    """
    trained: set[str] = set()
    for name in names:
        recipe = RECIPES[PACKAGES[name]]
        start: Path | None = None
        for step in chain_of(recipe):
            if step.name not in trained:
                train(step, data, runs / step.name, start_from=start, compile_model=compile_model)
                trained.add(step.name)
            start = runs / step.name
        make_package(recipe, data, runs, out / name)


def make_package(recipe: Recipe, data: Path, runs: Path, package: Path) -> None:
    """Export a recipe's run in int8, and write its figures beside those of float32."""
    reference = runs / f"{package.name}-float32"
    export_run(runs / recipe.name, package, precision="int8")
    export_run(runs / recipe.name, reference, precision="float32")
    evaluate(package, data, reference=reference)
