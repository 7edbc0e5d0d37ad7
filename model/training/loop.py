"""The training loop: one for every objective, plain, and resumable at any checkpoint."""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from model.architectures import Transformer, build
from model.config import TransformerConfig
from model.locks import alone_in
from model.package.files import sha256_of, write_whole
from model.package.heap import keeping_freed_memory
from model.progress import note, with_bar
from model.sizes import SIZES
from model.training.batches import prefetched
from model.training.decisions import (
    Decisions,
    check_unchanged,
    hashes_of,
    values_of_objective,
    values_of_recipe,
)
from model.training.errors import DataError, RunError
from model.training.files import noting_files
from model.training.half import autocast
from model.training.interruption import ending_by, noting_interruption
from model.training.objectives import Batch
from model.training.optimizer import learning_rate_factor, optimizer_of
from model.training.recipe import Recipe
from model.training.run import Run, is_over, load_trained, load_whole, save_whole
from model.training.start import begin_with, check_start, mixed
from model.training.teacher import Teacher


def train(
    recipe: Recipe,
    data: Path,
    folder: Path,
    *,
    start_from: Path | None = None,
    size: TransformerConfig | None = None,
    compile_model: bool = True,
    report: Report | None = None,
) -> Transformer:
    """Train a recipe on the data sets under `data`; an interrupted run in `folder` is resumed where it stopped.

    `start_from` is another run's folder, whose tokenizer and weights a new run begins with; a head that the other has
    not begins anew. `report` is called with the training every 50 steps, and returns what is shown of it, too.
    Raises `RunError` where anything else differs, another process trains into the folder, or it has others' files.
    Ctrl-C ends it behind the step that is being taken, with a checkpoint. Returns the model as it is after the last
    step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process is training there; wait for it, or train into another folder"
    with alone_in(folder, RunError(busy)):
        if recipe.teach is not None and start_from is None and not Run(folder).checkpoint.exists():
            raise RunError(
                f"{recipe.name}: give --start-from the folder of a run of {recipe.starts_from}, which teaches it"
            )
        training = Training(recipe, data, folder, start_from=start_from, size=size, compile_model=compile_model)
        training.resume()
        if training.saved_step is not None and not training.is_finished:
            training.say(f"goes on at step {training.saved_step:,}")
        try:
            with training.keeping_memory():
                training.run_steps(report)
        except KeyboardInterrupt:
            if training.saved_step is not None:
                training.say(f"stopped at step {training.saved_step:,}", "the same command goes on")
            raise
    return training.model


class Training:
    """One run's state: weights, optimizer, and where in which epoch it stands."""

    def __init__(
        self,
        recipe: Recipe,
        data: Path,
        folder: Path,
        *,
        start_from: Path | None = None,
        size: TransformerConfig | None = None,
        compile_model: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.recipe, self.run, self.start_from = recipe, Run(folder), start_from
        self.run.check_resumable()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        config = recipe.configure(size or SIZES[recipe.size])
        self.start: Transformer | None = None  # whose weights a new run begins with
        if start_from is not None:
            self._start_sha256 = sha256_of(Run(start_from).weights)  # first: it may be replaced while data are read
            self.start = load_trained(start_from)[0].to(self.device)
            check_start(config, self.start.config)
        with noting_files() as files:
            rows, validation_rows = recipe.read(data, "train"), recipe.read(data, "validation")
        self._check_some(data, train=rows, validate=validation_rows)
        tokenizer = self._tokenizer(rows, config.vocab_size)
        if tokenizer is not None:
            config = replace(config, vocab_size=tokenizer.get_vocab_size())
            if recipe.teach is not None:
                rows = recipe.teach(self._teacher(), tokenizer, rows)
        self.objective, self.validation = (recipe.objective(tokenizer, config) for _ in range(2))
        self.objective.encode(rows)
        self.validation.encode(validation_rows)
        batches = self.objective.batches(recipe.batch_tokens, self.epoch_rng(0))
        validation = self.validation.batches(recipe.batch_tokens, None)
        self._check_some(data, train=batches, validate=validation)

        torch.manual_seed(recipe.seed)
        self.model = build(config).to(self.device)
        # For many shapes it takes a GPU longer to compile than it gains in a run of some thousand steps.
        compiles = compile_model and (self.device.type == "cpu" or self.objective.has_fixed_shapes)
        self.loss = self._compiled(self.objective.loss) if compiles else self.objective.loss
        self.optimizer = optimizer_of(
            self.model, recipe.learning_rate, recipe.weight_decay, recipe.layer_decay, recipe.muon_learning_rate
        )
        self.total_steps = max(1, round(len(batches) / recipe.accumulate * recipe.epochs))
        self.step = 0  # steps done
        self.epoch, self.position = 0, 0  # the next batch: its epoch, and its place there
        self.seconds = 0.0
        self.decisions = Decisions(
            recipe=values_of_recipe(recipe),
            objective=values_of_objective(self.objective),
            start=self._start(),
            data=hashes_of(files, data),
            tokenizer=self.run.tokenizer_hash(),
            model=config.to_dict(),
            steps=self.total_steps,
        )
        self.averaged = self._average()  # what is validated and kept, where the recipe averages
        self.began: Transformer | None = None  # what it began with, where the recipe keeps a share of that
        self.losses: list[float | torch.Tensor] = []  # of the steps since the last line of the log
        self.gradients: list[torch.Tensor] = []  # their norms, of the same steps; a resumed run begins anew
        self.saved = 0.0  # the last checkpoint, in seconds of the run
        self.saved_step: int | None = None  # of the last checkpoint
        self.best: float | None = None  # validation figure
        self.evaluations_since_best = 0

    def _check_some(self, data: Path, **found: Sized) -> None:
        for purpose, some in found.items():
            if not len(some):
                raise DataError(f"{self.recipe.name}: under {data} there is nothing to {purpose} on that it could use")

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done, or the validation figure has stopped getting better."""
        return is_over(self.step, self.total_steps, self.evaluations_since_best, self.recipe.patience)

    def run_steps(self, report: Report | None = None) -> None:
        """Train until the run is finished; checkpoint, log and evaluate on the way, and show what `report` returns."""
        import_module("matplotlib")  # of an extra of its own: better missing now than after the first minute
        if not self.run.checkpoint.exists():
            self._describe()
            self.save()
        started = time.monotonic() - self.seconds
        with (
            noting_interruption() as interruption,
            closing(prefetched(self._batches(), PREFETCHED)) as batches,
            with_bar(range(self.total_steps), initial=self.step, unit="step", dynamic_ncols=True) as progress,
        ):
            while not self.is_finished:
                taken = [next(batches) for _ in range(self.recipe.accumulate)]
                with ending_by(interruption):
                    self.losses.append(self.take_step([batch for batch, _ in taken]))
                self.epoch, self.position = taken[-1][1]
                self.seconds = time.monotonic() - started
                progress.update()
                is_last = self.step == self.total_steps
                if self.step % LOG_EVERY == 0 or is_last:
                    self._check_finite()
                    loss = statistics.mean(self._read_losses())
                    self.losses, self.gradients = [], []
                    shown = {"loss": f"{loss:.3f}", "epoch": f"{self.epoch}"}
                    note(progress, self.recipe.name, self.step, {**shown, **(report(self) if report else {})})
                    self.run.append(step=self.step, epoch=self.epoch, loss=loss, seconds=round(self.seconds, 1))
                if self.step % self.recipe.evaluate_every == 0 or is_last:
                    with ending_by(interruption):
                        self._keep_if_best()
                is_due = self.seconds - self.saved >= self.recipe.checkpoint_seconds
                if self.is_finished or is_due or interruption.has_come:
                    self.run.draw(self.objective.metric)  # before, as nobody draws for a run that is finished
                    self.save()
                if interruption.has_come:
                    raise KeyboardInterrupt

    def _batches(self) -> Iterator[tuple[Batch, tuple[int, int]]]:
        """Yield batches from the run's place on, epoch after epoch without end, and the place behind each."""
        epoch, position = self.epoch, self.position
        while True:
            batches = self.objective.batches(self.recipe.batch_tokens, self.epoch_rng(epoch))
            for number, indices in enumerate(batches[position:], start=position + 1):
                behind = (epoch, number) if number < len(batches) else (epoch + 1, 0)
                yield self._pinned(self.objective.collate(indices)), behind
            epoch, position = epoch + 1, 0

    def _read_losses(self) -> list[float]:
        """Return the losses since the last line of the log, not as their steps are taken: a GPU would wait for each."""
        return [float(loss) for loss in self.losses]

    def _check_finite(self) -> None:
        """Raise `RunError` where a loss or a gradient since the last line of the log is not finite.

        With such a gradient the weights are not either, and must not take the place of good ones.
        """
        for name, values in (("loss", self._read_losses()), ("gradient", [float(norm) for norm in self.gradients])):
            for step, value in enumerate(values, start=self.step - len(values) + 1):
                if not math.isfinite(value):
                    raise RunError(
                        f"{self.run.folder}: the {name} of step {step} is {value}; try a lower learning rate"
                    )

    def take_step(self, batches: list[Batch]) -> torch.Tensor:
        """Take one optimizer step over the accumulated batches and return their mean loss, ()."""
        factor = learning_rate_factor(self.step, self.recipe.warmup_steps, self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * factor * group["scale"]
        weights = [self.objective.weight(batch) for batch in batches]
        mean = torch.zeros((), device=self.device)
        for batch, weight in zip(batches, weights, strict=True):
            if not weight:  # nothing to learn, nothing to divide by
                continue
            # Weighted by what each mean is taken over, as one large batch would; those to contrast stay its own, and
            # the loss of next sentences is weighted as that of masked words is.
            with self.autocast():
                loss = self.loss(self.model, self.to_device(batch)) * (weight / sum(weights))
            loss.backward()
            mean += loss.detach()
        self.gradients.append(nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm))
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        if self.averaged is not None:
            # The first steps' weights are soon forgotten: those of a tenth of all steps so far count.
            share = max(1 - self.recipe.ema_decay, 9 / (9 + self.step))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), share)
        return mean

    def _average(self) -> Transformer | None:
        """Return a copy of the model, to become the moving average of its weights (Polyak and Juditsky 1992)."""
        return self._frozen() if self.recipe.ema_decay else None

    def _frozen(self) -> Transformer:
        return copy.deepcopy(self.model).requires_grad_(False)

    @property
    def learned(self) -> Transformer:
        """The model that is validated and kept: the average, or as it is; with its share of what it began with."""
        learned = self.averaged or self.model
        return learned if self.began is None else mixed(learned, self.began, self.recipe.share_of_start)

    def evaluate(self) -> dict[str, float]:
        """Return the validation figures by name."""
        learned = self.learned.eval()
        with torch.no_grad(), self.autocast():
            scores = [
                self.validation.score(learned, self.to_device(self.validation.collate(indices)))
                for indices in self.validation.batches(self.recipe.batch_tokens, None)
            ]
        learned.train()
        return self.validation.summarise(scores)

    def _keep_if_best(self) -> None:
        """Evaluate, log, and keep the weights if they are the best so far."""
        self._check_finite()
        figures = self.evaluate()
        self.run.append(step=self.step, epoch=self.epoch, seconds=round(self.seconds, 1), **figures)
        if not all(map(math.isfinite, figures.values())):
            raise RunError(f"{self.run.folder}: the validation figures of step {self.step} are {figures}")
        value, sign = figures[self.objective.metric], 1 if self.objective.higher_is_better else -1
        if self.best is None or sign * value > sign * self.best:
            self.best, self.evaluations_since_best = value, 0
        else:
            self.evaluations_since_best += 1
        if value == self.best:  # of equals the one that has learned longer
            save_whole({**self._weights(self.learned), "step": self.step}, self.run.best)
            about = {"step": self.step, "of": self.total_steps, "seconds": round(self.seconds), **figures}
            write_whole(self.run.figures, json.dumps(about, indent=2) + "\n")

    def save(self) -> None:
        """Write the checkpoint."""
        self._check_finite()
        self.saved = self.seconds
        save_whole(
            {
                **self._weights(self.model),
                "averaged": None if self.averaged is None else self.averaged.state_dict(),
                "began": None if self.began is None else self.began.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "random_state": torch.get_rng_state(),
                "device_random_state": torch.cuda.get_rng_state() if self.device.type == "cuda" else None,
                **{name: getattr(self, name) for name in PLACE},
                "losses": self._read_losses(),
            },
            self.run.checkpoint,
        )
        self.saved_step = self.step

    def say(self, what: str, *more: str) -> None:
        """Print on stderr where the run stands, of how many steps."""
        print("; ".join((f"{self.run.folder}: {what} of {self.total_steps:,}", *more)), file=sys.stderr, flush=True)

    def resume(self) -> None:
        """Continue from the run's checkpoint, or begin.

        Raises `RunError` if anything that decides was another then: the recipe, the objective, the run it began with,
        the data sets' files, the tokenizer, the model's sizes, the number of steps.
        """
        if not self.run.checkpoint.exists():
            self.run.clear()
            if self.recipe.initialise is not None:
                self.recipe.initialise(self.model, self.objective)
            if self.start is not None:  # its weights take the place of fresh ones, and what it has not stays fresh
                assert self.start_from is not None
                labels = Run(self.start_from).about().card["labels"]
                begin_with(self.model, self.start, has_its_labels=tuple(labels) == self.recipe.card.labels)
                if self.recipe.share_of_start:
                    self.began = self._frozen()
            self.averaged = self._average()
            return
        check_unchanged(self.run.folder, self.run.decisions(), self.decisions)
        state = load_whole(self.run.checkpoint)
        self.model.load_state_dict(state["model"])
        if self.averaged is not None:
            self.averaged.load_state_dict(state["averaged"])
        if state.get("began") is not None:  # checkpoints of older versions have none
            self.began = self._frozen()
            self.began.load_state_dict(state["began"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random_state"])
        if self.device.type == "cuda" and state["device_random_state"] is not None:
            torch.cuda.set_rng_state(state["device_random_state"])
        for name in PLACE:
            setattr(self, name, state[name])
        self.saved, self.saved_step = self.seconds, self.step
        self.run.truncate_log(self.step)

    def _describe(self) -> None:
        """Write what the run was made with."""
        before = None if self.start_from is None else Run(self.start_from).about()
        known = [] if before is None else before.training_data
        about = {
            **self.decisions.to_dict(),
            "card": asdict(self.recipe.card),
            "training_data": [*known, *(data for data in self.recipe.card.training_data if data not in known)],
            "minutes_before": 0.0 if self.start_from is None else Run(self.start_from).minutes,
        }
        text = json.dumps(about, indent=2, default=lambda part: part.model_dump())
        write_whole(self.run.config, f"{text}\n")

    def _weights(self, model: Transformer) -> dict[str, Any]:
        """Return what makes a model again, and the hash of the tokenizer that it reads with."""
        return {
            "config": model.config.to_dict(),
            "model": model.state_dict(),
            "tokenizer": self.decisions.tokenizer,
        }

    def _start(self) -> dict[str, Any]:
        """Return by names what it begins with: what a resumed run began with unless it is given anew."""
        if self.start_from is not None:
            start = Run(self.start_from)
            return {"the weights of": start.about().recipe, "weights of sha256": self._start_sha256}
        return self.run.decisions().start if self.run.checkpoint.exists() else {}

    def _tokenizer(self, rows: list[Any], vocab_size: int) -> Tokenizer | None:
        if self.recipe.train_tokenizer is None:
            return None
        if self.run.checkpoint.exists():
            self.run.check_tokenizer(self.run.decisions().tokenizer)
        elif self.start_from is None:
            self.recipe.train_tokenizer(self.recipe.texts(rows), vocab_size).save(str(self.run.tokenizer))
        elif not Run(self.start_from).tokenizer.exists():
            raise RunError(f"{self.start_from}: there is no tokenizer.json, without which its weights read nothing")
        else:
            shutil.copyfile(Run(self.start_from).tokenizer, self.run.tokenizer)
        return Tokenizer.from_file(str(self.run.tokenizer))

    def _teacher(self) -> Teacher:
        """Return what the run begins with, and the file of what it says, which a new run has not."""
        if not self.run.checkpoint.exists():
            self.run.taught.unlink(missing_ok=True)  # by another start
        elif not self.run.taught.exists():
            raise RunError(
                f"{self.run.taught}: it is not there, and the run has learned from it; put it back, or remove "
                "the folder to begin anew"
            )
        own = None if self.start_from is None else Run(self.start_from).taught
        return Teacher(self.start, self.run.taught, own)

    def _compiled(self, loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        # Attention without a mask would be fused, which on a CPU makes steps longer by half.
        fuse = self.device.type != "cpu" or self.model.config.architecture != "vision"
        return torch.compile(loss, dynamic=not self.objective.has_fixed_shapes, options={"pattern_matcher": fuse})

    def keeping_memory(self) -> AbstractContextManager[None]:
        """Return what hands memory on from step to step, if all have one shape: others' pieces would fit badly."""
        return keeping_freed_memory() if self.objective.has_fixed_shapes else nullcontext()

    def autocast(self) -> torch.autocast:
        """Return what makes a GPU, or a CPU that can, compute in bfloat16."""
        return autocast(self.device)

    def epoch_rng(self, epoch: int) -> random.Random:
        """Return what decides an epoch's order, the same whenever it is asked for."""
        return random.Random(f"{self.recipe.seed}/{epoch}")

    def to_device(self, batch: Batch) -> Batch:
        """Return a batch where the model is."""
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def _pinned(self, batch: Batch) -> Batch:
        """Return a batch in memory that a GPU copies from by itself."""
        return {name: tensor.pin_memory() for name, tensor in batch.items()} if self.device.type == "cuda" else batch


Report = Callable[[Training], Mapping[str, str]]

LOG_EVERY = 50  # steps
PREFETCHED = 8  # batches

# Where a run stands, in its checkpoint.
PLACE = ("step", "epoch", "position", "seconds", "losses", "best", "evaluations_since_best")
