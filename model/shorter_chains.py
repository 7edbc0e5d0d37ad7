"""Chains of runs that start from packages: what those are made of need not be trained again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from model.export.unpack import unpack
from model.package import Manifest, PackageError
from model.training.errors import RunError
from model.training.recipe import Recipe
from model.training.recipes import PACKAGES
from model.training.run import Run

Chains = Mapping[str, Sequence[Recipe]]  # by package


def starting_from(packages: Path, chains: Chains, runs: Path) -> Chains:
    """Return what of each chain comes behind the last package, which becomes a run under `runs`.

    A run only starts from a package if nothing that it is made of is made anew. Raises `PackageError` where one in
    `packages` is not what its recipe makes, and `RunError` where another run is in its place.
    """
    made_of = {recipe: name for name, recipe in PACKAGES.items()}
    anew = {chain[-1].name for chain in chains.values()}
    shorter = {}
    for name, chain in chains.items():
        first = next(place for place, step in enumerate(chain) if step.name in anew)
        known = [step.name in made_of and (packages / made_of[step.name]).is_dir() for step in chain[:first]]
        begins = max((place for place, is_known in enumerate(known) if is_known), default=-1)
        if begins >= 0:
            recipe = chain[begins].name
            _unpack(packages / made_of[recipe], recipe, Run(runs / recipe))
        shorter[name] = chain[begins + 1 :]
    return shorter


def _unpack(package: Path, recipe: str, run: Run) -> None:
    """Make a package the run of a recipe, unless it is that already."""
    manifest = Manifest.load(package)
    if manifest.training is None or manifest.training.recipe != recipe:
        raise PackageError(f"{package}: {recipe} did not make it, so no run can start from it in place of that one")
    if run.folder.exists() and any(run.folder.iterdir()):
        if run.unpacked_from().get("sha256") != manifest.sha256:
            raise RunError(f"{run.folder}: another run is there than {package}; remove it, or choose another --runs")
        return
    unpack(package, run.folder)
