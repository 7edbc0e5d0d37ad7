"""How long runs that follow one another still take: their FLOPs, counted before, at the rate measured since."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from model.package.files import sha256_of, write_whole
from model.package.heap import trim_heap
from model.training.decisions import values_of_recipe
from model.training.loop import Training
from model.training.plan import count_flops
from model.training.recipe import Recipe
from model.training.run import Run

FILE = "estimate.json"  # what was counted, in the folder of the runs: reading all the data takes minutes


@dataclass
class Estimate:
    """The FLOPs of each recipe's run, and how much of it took how long.

    Runs that end early, having stopped to get better, take less than is said.
    """

    flops: dict[str, float]
    seconds: dict[str, float] = field(default_factory=dict)  # that were spent on each
    shares: dict[str, float] = field(default_factory=dict)  # that are done of each, 0 to 1

    def note(self, recipe: str, share: float, seconds: float) -> None:
        """Take in how far a run has come in its seconds."""
        self.shares[recipe], self.seconds[recipe] = share, seconds

    def look(self, runs: Path) -> None:
        """Take in how far every run has come by its log."""
        for recipe in self.flops:
            run = Run(runs / recipe)
            last = run.last_line()
            if last is not None:  # its steps are those of the tokenizer it began with
                self.note(recipe, min(1.0, last["step"] / run.decisions().steps), last["seconds"])

    def left(self) -> float | None:
        """Return the seconds that are left of all runs, at the rate of what is done; none before the first steps.

        They are those of one run after the other.
        """
        done = sum(self.flops[name] * share for name, share in self.shares.items())
        spent = sum(self.seconds.values())
        if not done or not spent:
            return None
        return sum(flops * (1 - self.shares.get(name, 0.0)) for name, flops in self.flops.items()) * spent / done

    def told(self, beside: int = 1) -> str:
        """Return what is left in words, where so many runs go on beside one another."""
        left = self.left()
        if left is None:
            return "unknown before the first steps"
        hours, minutes = divmod(round(left / beside / 60), 60)
        return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def estimate_of(recipes: Sequence[Recipe], data: Path, runs: Path) -> Estimate:
    """Count the FLOPs of all runs, but those that were counted before, and take in what is done of each.

    A run is counted as if it began with nothing: what it begins with may not be there yet, and costs no more. Raises
    `DataError` where files are missing that any of the runs reads, before the first of them has begun.
    """
    path = runs / FILE
    counted = json.loads(path.read_text()) if path.exists() else {}
    for recipe in recipes:
        values = json.loads(json.dumps(values_of_recipe(recipe)))
        noted = counted.get(recipe.name, {})
        if noted.get("recipe") != values or not _are_there(noted.get("data"), data):
            with TemporaryDirectory() as folder:
                training = Training(recipe, data, Path(folder), compile_model=False)
                flops = count_flops(training)
            counted[recipe.name] = {"recipe": values, "data": training.decisions.data, "flops": flops}
            del training
            trim_heap()  # all runs' gigabytes would else stay with the first that is trained
            runs.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(counted, indent=2) + "\n")
    estimate = Estimate({recipe.name: counted[recipe.name]["flops"] for recipe in recipes})
    estimate.look(runs)
    return estimate


def _are_there(files: dict[str, str] | None, data: Path) -> bool:
    """Whether the files that a run was counted of, given with their SHA-256, are still there, and still the same."""
    return files is not None and all(
        (data / name).exists() and sha256_of(data / name) == sha256 for name, sha256 in files.items()
    )
