"""The training loop: one for every objective, plain, and resumable at any checkpoint."""

from __future__ import annotations

import json
import math
import random
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from tqdm import tqdm

from model.architectures import Transformer, build
from model.config import SIZES, TransformerConfig
from model.training.objectives import Batch, Objective
from model.training.recipes import Recipe


@dataclass
class Run:
    """A training run's folder: tokenizer.json, checkpoint.pt and log.jsonl."""

    folder: Path

    @property
    def tokenizer(self) -> Path:
        """The tokenizer trained first."""
        return self.folder / "tokenizer.json"

    @property
    def checkpoint(self) -> Path:
        """The newest weights, with all that resuming needs."""
        return self.folder / "checkpoint.pt"

    def log(self, **values: float) -> None:
        """Append a line to log.jsonl."""
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(values) + "\n")


def train(
    recipe: Recipe,
    data: Path,
    folder: Path,
    *,
    start_from: Path | None = None,
    size: TransformerConfig | None = None,
    compile_model: bool = True,
) -> Transformer:
    """Train a recipe on the data sets under `data`; an interrupted run in `folder` is resumed where it stopped.

    `start_from` is another run's folder, whose tokenizer and weights a new run begins with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    if start_from is not None and not run.tokenizer.exists():
        shutil.copyfile(Run(start_from).tokenizer, run.tokenizer)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = size or SIZES[recipe.size]
    rows = recipe.read(data, "train")
    tokenizer = _tokenizer(recipe, rows, run, config.vocab_size)
    config = replace(config, vocab_size=tokenizer.get_vocab_size())
    objective = recipe.objective(tokenizer, config)
    objective.encode(rows)
    validation = recipe.objective(tokenizer, config)
    validation.encode(recipe.read(data, "validation"))

    torch.manual_seed(recipe.seed)
    model = build(config).to(device)
    if start_from is not None:
        model.load_state_dict(load_checkpoint(start_from)[0].state_dict())
    training = _Training(recipe, run, model, objective, validation, device, compile_model)
    training.resume()
    training.run_steps()
    return model


def load_checkpoint(folder: Path) -> tuple[Transformer, Tokenizer, dict[str, Any]]:
    """Return the model of a run's newest checkpoint in evaluation mode, its tokenizer, and the training state."""
    state = torch.load(Run(folder).checkpoint, map_location="cpu", weights_only=False)
    model = build(TransformerConfig(**state["config"]))
    model.load_state_dict(state["model"])
    return model.eval(), Tokenizer.from_file(str(Run(folder).tokenizer)), state


def learning_rate_factor(step: int, warmup_steps: int, total_steps: int) -> float:
    """Return what the peak rate is multiplied by: a linear warm-up, then half a cosine down to 2 %."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def _tokenizer(recipe: Recipe, rows: list[Any], run: Run, vocab_size: int) -> Tokenizer:
    if not run.tokenizer.exists():
        recipe.train_tokenizer(recipe.texts(rows), vocab_size).save(str(run.tokenizer))
    return Tokenizer.from_file(str(run.tokenizer))


class _Training:
    """One run's state: weights, optimizer, and where in which epoch it stands."""

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        model: Transformer,
        objective: Objective,
        validation: Objective,
        device: torch.device,
        compile_model: bool,
    ) -> None:
        self.recipe, self.run, self.model, self.device = recipe, run, model, device
        self.objective, self.validation = objective, validation
        self.loss = torch.compile(objective.loss, dynamic=True) if compile_model else objective.loss
        self.optimizer = torch.optim.AdamW(
            _parameter_groups(model, recipe.weight_decay), lr=recipe.learning_rate, betas=(0.9, 0.98)
        )
        steps_per_epoch = len(objective.batches(recipe.batch_tokens, self._epoch_rng(0)))
        self.total_steps = round(steps_per_epoch * recipe.epochs)
        self.step = 0  # steps done
        self.epoch, self.position = 0, 0  # the next batch: its epoch, and its place there
        self.seconds = 0.0

    def run_steps(self) -> None:
        """Train until the recipe's number of steps is reached; checkpoint, log and evaluate on the way."""
        started = time.monotonic() - self.seconds
        progress = tqdm(total=self.total_steps, initial=self.step, unit="step", dynamic_ncols=True)
        while self.step < self.total_steps:
            batches = self.objective.batches(self.recipe.batch_tokens, self._epoch_rng(self.epoch))
            while self.position < len(batches) and self.step < self.total_steps:
                loss = self._take_step(self.objective.collate(batches[self.position]))
                self.position += 1
                self.seconds = time.monotonic() - started
                progress.update()
                if self.step % 50 == 0:
                    progress.set_postfix(loss=f"{float(loss):.3f}", epoch=f"{self.epoch}")
                    self.run.log(step=self.step, epoch=self.epoch, loss=float(loss), seconds=self.seconds)
                if self.step % self.recipe.evaluate_every == 0 or self.step == self.total_steps:
                    self.run.log(step=self.step, epoch=self.epoch, seconds=self.seconds, **self.evaluate())
                if self.step % self.recipe.checkpoint_every == 0 or self.step == self.total_steps:
                    self.save()
            if self.position == len(batches):
                self.epoch, self.position = self.epoch + 1, 0
        progress.close()

    def evaluate(self) -> dict[str, float]:
        """Return the validation score by name."""
        self.model.eval()
        total, count = 0.0, 0
        with torch.no_grad(), self._autocast():
            for indices in self.validation.batches(self.recipe.batch_tokens, None):
                score, number = self.validation.score(self.model, self._to_device(self.validation.collate(indices)))
                total, count = total + score, count + number
        self.model.train()
        return self.validation.summarise(total / count)

    def save(self) -> None:
        """Write the checkpoint; an interruption leaves the old or the new one whole."""
        partial = self.run.checkpoint.with_suffix(".partial")
        torch.save(
            {
                "config": self.model.config.to_dict(),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "random_state": torch.get_rng_state(),
                **{name: getattr(self, name) for name in ("step", "epoch", "position", "seconds")},
            },
            partial,
        )
        partial.replace(self.run.checkpoint)

    def resume(self) -> None:
        """Continue from the run's checkpoint, if it has one."""
        if not self.run.checkpoint.exists():
            return
        state = torch.load(self.run.checkpoint, map_location="cpu", weights_only=False)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random_state"])
        for name in ("step", "epoch", "position", "seconds"):
            setattr(self, name, state[name])

    def _take_step(self, batch: Batch) -> Tensor:
        factor = learning_rate_factor(self.step, self.recipe.warmup_steps, self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * factor
        with self._autocast():
            loss = self.loss(self.model, self._to_device(batch))
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return loss.detach()

    def _autocast(self) -> torch.autocast:
        # bfloat16 has float32's range, so no loss scaling is needed; CPUs with AMX gain from it as GPUs do.
        return torch.autocast(self.device.type, torch.bfloat16)

    def _epoch_rng(self, epoch: int) -> random.Random:
        return random.Random(f"{self.recipe.seed}/{epoch}")

    def _to_device(self, batch: Batch) -> Batch:
        return {name: tensor.to(self.device) for name, tensor in batch.items()}


def _parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay matrices only; biases and norms are left alone."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
