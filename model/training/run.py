"""A training run's folder, and what it leaves there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from model.architectures import Transformer, build
from model.checked import ConfigError
from model.config import TransformerConfig
from model.package import Dataset
from model.package.files import sha256_of, write_whole
from model.package.manifest import FILE_NAME as MANIFEST_FILE
from model.training.decisions import Decisions
from model.training.errors import RunError
from model.wording import first_line

# What stands in the folder of a checkpoint, a tokenizer or a package, beside names that a run writes, too.
OF_OTHERS = frozenset(
    {
        *("manifest.json", "model.safetensors.index.json", "generation_config.json", "modules.json"),
        *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
        *("vocab.json", "vocab.txt", "merges.txt"),
    }
)
SUFFIXES_OF_OTHERS = frozenset({".bin", ".model", ".onnx", ".safetensors"})


@dataclass(frozen=True)
class About:
    """What a run was begun with."""

    recipe: str
    training_data: list[Dataset]  # also of the runs whose weights it began with
    minutes_before: float  # that those took
    card: dict[str, Any]  # as it was then
    data: dict[str, str]  # SHA-256 of the files that it learned from, by their names


def is_over(step: int, steps: int, evaluations_since_best: int, patience: int | None) -> bool:
    """Whether a run is finished: all steps are done, or its validation figure has stopped getting better."""
    return step >= steps or (patience is not None and evaluations_since_best >= patience)


@dataclass(frozen=True)
class Progress:
    """How far a run is that has a checkpoint."""

    step: int  # of the newest checkpoint
    steps: int
    is_finished: bool  # all steps are done, or it stopped to get better


@dataclass(frozen=True)
class Run:
    """The files of a run: everything needed to resume it, to export it and to see how it went."""

    folder: Path

    @property
    def config(self) -> Path:
        """What decides the run, and its card; written once, as it begins."""
        return self.folder / "config.json"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer trained first; a model of images has none."""
        return self.folder / "tokenizer.json"

    @property
    def taught(self) -> Path:
        """What the model it began with says of rows that nobody labelled, where the recipe asks it."""
        return self.folder / "taught.npz"

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
        content = self._noted()
        try:
            return About(
                recipe=content["recipe"]["name"],
                training_data=[Dataset.model_validate(dataset) for dataset in content["training_data"]],
                minutes_before=content["minutes_before"],
                card=content["card"],
                data=content.get("data", {}),
            )
        except (KeyError, TypeError, ValueError):  # a checkpoint of another program has a config.json, too
            raise RunError(f"{self.config}: it is not that of a training run") from None

    def decisions(self) -> Decisions:
        """Read what decides the run; raises `RunError` where there is none, or an older version noted less."""
        content, names = self._noted(), [field.name for field in fields(Decisions)]
        missing = [name for name in names if name not in content]
        if missing:
            raise RunError(
                f"{self.config}: {', '.join(missing)} is not noted there, as by older versions, so nothing tells "
                "whether the run would go on as it began; train into another folder, or remove this one to begin anew"
            )
        return Decisions(**{name: content[name] for name in names})

    def unpacked_from(self) -> dict[str, Any]:
        """Read which package the run is the model of; empty for one that was trained, and `RunError` for no run."""
        source: dict[str, Any] = self._noted().get("unpacked_from", {})
        return source

    def _noted(self) -> dict[str, Any]:
        if not self.config.exists():
            raise self._not_a_run(f"there is no {self.config.name}; it is not the folder of a training run")
        try:
            content = json.loads(self.config.read_text())
        except ValueError as error:
            raise RunError(f"{self.config}: {error}") from None
        if not isinstance(content, dict):
            raise RunError(f"{self.config}: it is not that of a training run")
        return content

    @property
    def weights(self) -> Path:
        """The best weights, or the newest before any evaluation; raises `RunError` where there are none."""
        path = self.best if self.best.exists() else self.checkpoint
        if not path.exists():
            raise self._not_a_run(f"there is no {path.name}; it is not the folder of a training run, or one just begun")
        return path

    def _not_a_run(self, found: str) -> RunError:
        """Return an error that tells what the folder is instead of a run's, or else what was `found`."""
        if (self.folder / MANIFEST_FILE).exists():
            found = f"it is a package; `trifold unpack {self.folder} --out FOLDER` makes a run of it"
        elif not self.folder.exists():
            found = "there is no such folder"
        return RunError(f"{self.folder}: {found}")

    def progress(self) -> Progress | None:
        """Read how far the newest checkpoint is; none where none can be read, or an older version did not note it."""
        noted = self._noted() if self.checkpoint.exists() else {}
        if "steps" not in noted:
            return None
        try:
            state = load_whole(self.checkpoint)
        except RunError:  # which only what goes on with it needs to tell
            return None
        step, steps, patience = state["step"], noted["steps"], noted["recipe"].get("patience")
        return Progress(step, steps, is_over(step, steps, state["evaluations_since_best"], patience))

    def tokenizer_hash(self) -> str | None:
        """Return the SHA-256 of the tokenizer's file; none where there is no such file."""
        return sha256_of(self.tokenizer) if self.tokenizer.exists() else None

    def check_tokenizer(self, expected: str | None) -> None:
        """Refuse a tokenizer that is not the one some weights learned with; raises `RunError`."""
        found = self.tokenizer_hash()
        if found != expected:
            raise RunError(
                f"{self.tokenizer}: its sha256 is {found}, and the weights beside it learned with one of {expected}; "
                "put that one back, or train into another folder"
            )

    def last_line(self) -> dict[str, float] | None:
        """Return the log's last line; none of a run just begun."""
        lines = self._logged()
        return lines[-1] if lines else None

    def in_words(self) -> str:
        """Return what a run came to: its steps, how long they took, and the figures of its best weights."""
        figures, last = json.loads(self.figures.read_text()), self.last_line()
        step, steps = (figures.pop(name) for name in ("step", "of"))
        del figures["seconds"]
        assert last is not None, "bug: a run with figures has logged them"
        done = f"{last['step']:,}" if last["step"] == steps else f"{last['step']:,} of {steps:,}"
        best = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        return f"{done} steps in {last['seconds'] / 60:.1f} min; best at step {step:,}: {best}"

    @property
    def minutes(self) -> float:
        """How long it took, with the runs whose weights it began with."""
        last = self.last_line()
        return self.about().minutes_before + (last["seconds"] if last else 0.0) / 60

    def append(self, **values: float) -> None:
        """Append a line to the log."""
        with self.log.open("a") as file:
            file.write(json.dumps(values) + "\n")

    def check_resumable(self) -> None:
        """Refuse a folder of weights that cannot be trained on, or of files that are no run's; raises `RunError`."""
        if self.checkpoint.exists():
            return
        if self.best.exists():
            raise RunError(
                f"{self.folder}: there is {self.best.name}, and no {self.checkpoint.name} to go on from; "
                "train into another folder, or remove this one to begin anew"
            )
        if self._is_described():
            return
        # A run that is killed before leaves a tokenizer, what it was taught, or half a description, which is empty.
        of_described = {self.config, self.log, self.figures, self.curves}
        if self.config.exists() and self.config.stat().st_size == 0:
            of_described = set()
        for path in sorted(self.folder.iterdir()):
            if path in of_described or path.name in OF_OTHERS or path.suffix in SUFFIXES_OF_OTHERS:
                raise RunError(
                    f"{self.folder}: there is {path.name}, and no description of a training run, so the files there "
                    "may be others', and training could replace some; train into an empty folder, or empty this one"
                )

    def _is_described(self) -> bool:
        """Whether a run's description is there, which it writes before its figures."""
        if not self.config.exists():
            return False
        with suppress(RunError):
            return "recipe" in self._noted()
        return False

    def clear(self) -> None:
        """Drop what a run left that has no checkpoint: it would pass for this one's."""
        for path in (self.log, self.figures, self.curves):
            path.unlink(missing_ok=True)

    def truncate_log(self, step: int) -> None:
        """Drop what was logged after a step: a resumed run goes through it again."""
        if self.log.exists():
            kept = [line for line in self._logged() if line["step"] <= step]
            write_whole(self.log, "".join(f"{json.dumps(line)}\n" for line in kept))

    def draw(self, metric: str) -> None:
        """Draw the curves of the log, once it has a line; `metric` is the validation figure that decides."""
        if self.log.exists():
            draw_curves(self._logged(), metric, self.curves)

    def _logged(self) -> list[dict[str, float]]:
        """Return the log's lines, but a last one that was interrupted as it was written."""
        whole = self.log.read_text().split("\n")[:-1] if self.log.exists() else []
        return [json.loads(line) for line in whole]


def save_whole(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint; an interruption leaves the old or the new one whole."""
    partial = path.with_suffix(".partial")
    try:
        torch.save(state, partial)
    except BaseException as error:
        partial.unlink(missing_ok=True)  # it may be what has filled the disk
        if isinstance(error, RuntimeError) and "inline_container" in str(error):  # torch's own words for it
            raise OSError(f"{path}: cannot be written, perhaps as the disk is full: {error}") from None
        raise
    with partial.open("rb") as file:
        os.fsync(file)  # or the name could outlast a power failure, and not the content
    partial.replace(path)


def load_whole(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; raises `RunError` for one that is damaged, `OSError` for one out of reach."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):  # nothing that is wrong with what it holds
        raise
    except Exception as error:  # whatever a reader of broken files may raise
        raise RunError(
            f"{path}: cannot be read ({first_line(error)}); put it back, or remove the folder to begin anew"
        ) from None
    return state


def load_trained(folder: Path) -> tuple[Transformer, Tokenizer | None, dict[str, Any]]:
    """Return a run's best model, or the newest before any evaluation, its tokenizer, and what was saved with it.

    Raises `RunError` where there is neither, a tokenizer that they did not learn with, or sizes of another version.
    """
    run = Run(folder)
    state = load_whole(run.weights)
    if "tokenizer" in state:  # older versions did not note it
        run.check_tokenizer(state["tokenizer"])
    try:
        config = TransformerConfig.from_dict(state["config"])
    except ConfigError as error:
        raise RunError(f"{run.weights}: {error}; train it with this version") from None
    model = build(config)
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
    partial = path.with_suffix(".partial")
    figure.savefig(partial, dpi=100, format="png")
    partial.replace(path)
