"""What a run will take, before it is begun: parameters, tokens, FLOPs, time on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from model.training.loop import Training
from model.training.objectives import Batch

# Of a run's first epoch; of them some are counted, and some timed, small ones and large ones.
SAMPLED_BATCHES, COUNTED_BATCHES, TIMED_STEPS = 64, 8, 3
T = TypeVar("T")
TOKENS = ("input_ids", "source_ids", "target_ids")


@dataclass(frozen=True)
class Plan:
    """Sizes of a run; tokens are counted padded, FLOPs are those of matrix products, forward and backward."""

    parameters: int
    steps: int
    tokens: int  # images, where images come in
    flops: float
    seconds: float  # of steps
    evaluating_s: float

    def lines(self) -> list[tuple[str, str]]:
        """Return names and values to print."""
        return [
            ("parameters", f"{self.parameters:,}"),
            ("steps", f"{self.steps:,}"),
            ("tokens or images seen", f"{self.tokens:,}"),
            ("FLOPs", f"{self.flops:.2e}"),
            ("time here", f"{self.seconds / 60:.0f} min at {self.flops / self.seconds / 1e9:.0f} GFLOP/s"),
            ("evaluations", f"{self.evaluating_s / 60:.0f} min more"),
        ]


def plan(training: Training) -> Plan:
    """Count the FLOPs of some of a run's batches, and time some steps; the weights change, nothing is saved."""
    batches = _sampled(training)
    tokens = _tokens_of_run(training, batches)
    flops = _flops_of_run(training, batches)
    timed = _spread(batches, TIMED_STEPS)
    with training.keeping_memory():
        float(training.take_step(timed[:1]))  # compiles; read, so that a GPU has done it
        started = time.monotonic()
        for batch in timed:
            float(training.take_step([batch]))
        seconds = (time.monotonic() - started) / sum(map(_tokens, timed)) * tokens
    return Plan(
        parameters=sum(parameter.numel() for parameter in training.model.parameters()),
        steps=training.total_steps,
        tokens=round(tokens),
        flops=flops,
        seconds=seconds,
        evaluating_s=_seconds_of_evaluations(training),
    )


def count_flops(training: Training) -> float:
    """Return the FLOPs of a whole run, counted on some of its batches; nothing changes."""
    return _flops_of_run(training, _sampled(training))


def _flops_of_run(training: Training, batches: Sequence[Batch]) -> float:
    counted = _spread(batches, COUNTED_BATCHES)
    with FlopCounterMode(display=False) as counter, training.autocast():  # in no more memory than training
        for batch in counted:
            training.objective.loss(training.model, training.to_device(batch)).backward()
    training.optimizer.zero_grad()
    return counter.get_total_flops() / sum(map(_tokens, counted)) * _tokens_of_run(training, batches)


def _seconds_of_evaluations(training: Training) -> float:
    """Time the evaluation of some batches, for all of a run's."""
    recipe, validation = training.recipe, training.validation
    indices = validation.batches(recipe.batch_tokens, None)
    started = time.monotonic()
    some = _spread(indices, TIMED_STEPS)
    with torch.no_grad(), training.autocast():
        for each in some:
            validation.score(training.learned.eval(), training.to_device(validation.collate(each)))
    training.learned.train()
    evaluations = -(-training.total_steps // recipe.evaluate_every)
    return (time.monotonic() - started) / len(some) * len(indices) * evaluations


def _sampled(training: Training) -> list[Batch]:
    """Return some of the first epoch's batches, in the order of their sizes."""
    objective = training.objective
    indices = objective.batches(training.recipe.batch_tokens, training.epoch_rng(0))
    return sorted((objective.collate(some) for some in _spread(indices, SAMPLED_BATCHES)), key=_tokens)


def _spread(items: Sequence[T], count: int) -> list[T]:
    """Return so many items, or all there are, each from the middle of a part of its own."""
    count = min(count, len(items))
    return [items[(2 * part + 1) * len(items) // (2 * count)] for part in range(count)]


def _tokens_of_run(training: Training, sampled: Sequence[Batch]) -> float:
    return sum(map(_tokens, sampled)) / len(sampled) * training.total_steps * training.recipe.accumulate


def _tokens(batch: Batch) -> int:
    return len(batch["pixels"]) if "pixels" in batch else sum(batch[name].numel() for name in TOKENS if name in batch)
