"""A training run's folder, and what it leaves there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from model.architectures import Transformer, build
from model.config import TransformerConfig
from model.package import Dataset
from model.training.errors import RunError


@dataclass(frozen=True)
class About:
    """What a run was begun with."""

    recipe: str
    training_data: list[Dataset]  # also of the runs whose weights it began with
    minutes_before: float  # that those took
    began_with: str | None  # the recipe of the run whose weights it began with


@dataclass(frozen=True)
class Run:
    """The files of a run: everything needed to resume it, to export it and to see how it went."""

    folder: Path

    @property
    def config(self) -> Path:
        """The recipe's values, the model's sizes, and what it began with; written once, as it begins."""
        return self.folder / "config.json"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer trained first; a model of images has none."""
        return self.folder / "tokenizer.json"

    @property
    def checkpoint(self) -> Path:
        """The newest weights, with all that resuming needs."""
        return self.folder / "checkpoint.pt"

    @property
    def best(self) -> Path:
        """The weights with the best validation figure."""
        return self.folder / "best.pt"

    @property
    def log(self) -> Path:
        """A line for every 50 steps, and one for every evaluation."""
        return self.folder / "log.jsonl"

    @property
    def figures(self) -> Path:
        """The validation figures of the best weights, and what the run took."""
        return self.folder / "figures.json"

    @property
    def curves(self) -> Path:
        """Loss and validation figures by step, as a picture."""
        return self.folder / "curves.png"

    def about(self) -> About:
        """Read what the run was begun with; raises `RunError` where there is none."""
        if not self.config.exists():
            raise RunError(f"{self.folder}: there is no {self.config.name}; it is not the folder of a training run")
        content = json.loads(self.config.read_text())
        return About(
            recipe=content["recipe"]["name"],
            training_data=[Dataset.model_validate(dataset) for dataset in content["training_data"]],
            minutes_before=content["minutes_before"],
            began_with=content["began_with"],
        )

    @property
    def minutes(self) -> float:
        """How long it took, with the runs whose weights it began with."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []  # none of a run just begun
        seconds: float = json.loads(lines[-1])["seconds"] if lines else 0.0
        return self.about().minutes_before + seconds / 60

    def append(self, **values: float) -> None:
        """Append a line to the log."""
        with self.log.open("a") as file:
            file.write(json.dumps(values) + "\n")

    def clear_log(self) -> None:
        """Drop the log of a run that did not come to its first checkpoint."""
        self.log.unlink(missing_ok=True)

    def truncate_log(self, step: int) -> None:
        """Drop what was logged after a step: a resumed run goes through it again."""
        if self.log.exists():
            lines = [line for line in self.log.read_text().splitlines() if json.loads(line)["step"] <= step]
            self.log.write_text("".join(f"{line}\n" for line in lines))

    def draw(self, metric: str) -> None:
        """Draw the curves of the log; `metric` is the validation figure that decides."""
        draw_curves([json.loads(line) for line in self.log.read_text().splitlines()], metric, self.curves)


def save_whole(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint; an interruption leaves the old or the new one whole."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def load_trained(folder: Path) -> tuple[Transformer, Tokenizer | None, dict[str, Any]]:
    """Return a run's best model, or the newest before any evaluation, its tokenizer, and what was saved with it.

    Raises `RunError` where there is neither.
    """
    run = Run(folder)
    path = run.best if run.best.exists() else run.checkpoint
    if not path.exists():
        raise RunError(f"{folder}: there is no {path.name}; it is not the folder of a training run, or one just begun")
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = build(TransformerConfig.from_dict(state["config"]))
    model.load_state_dict(state["model"])
    tokenizer = Tokenizer.from_file(str(run.tokenizer)) if run.tokenizer.exists() else None
    return model.eval(), tokenizer, state


def draw_curves(log: list[dict[str, float]], metric: str, path: Path) -> None:
    """Draw loss and validation figure by step, one above the other."""
    from matplotlib.figure import Figure  # slow to import, and needed once a run

    figure = Figure(figsize=(7, 6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    for axes, name in ((above, "loss"), (below, metric)):
        lines = [line for line in log if name in line]
        axes.plot(
            [line["step"] for line in lines], [line[name] for line in lines], marker="." if name == metric else ""
        )
        axes.set_ylabel(f"training {name}" if name == "loss" else f"validation {name}")
        axes.grid(alpha=0.3)
    below.set_xlabel("step")
    figure.savefig(path, dpi=100)
