"""What a run will take, before it is begun: parameters, tokens, FLOPs, time on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

from torch.utils.flop_counter import FlopCounterMode

from model.training.loop import Training
from model.training.objectives import Batch

SAMPLED_BATCHES, TIMED_STEPS = 8, 3
TOKENS = ("input_ids", "source_ids", "target_ids")


@dataclass(frozen=True)
class Plan:
    """Sizes of a run; tokens are counted padded, FLOPs are those of matrix products, forward and backward."""

    parameters: int
    steps: int
    tokens: int  # images, where images come in
    flops: float
    seconds: float

    def lines(self) -> list[tuple[str, str]]:
        """Return names and values to print."""
        return [
            ("parameters", f"{self.parameters:,}"),
            ("steps", f"{self.steps:,}"),
            ("tokens or images seen", f"{self.tokens:,}"),
            ("FLOPs", f"{self.flops:.2e}"),
            ("time here", f"{self.seconds / 60:.0f} min at {self.flops / self.seconds / 1e9:.0f} GFLOP/s"),
        ]


def plan(training: Training) -> Plan:
    """Count the FLOPs of some of a run's batches, and time some steps; the weights change, nothing is saved."""
    recipe, batches = training.recipe, _sampled(training)
    of_run = training.total_steps * recipe.accumulate / len(batches)
    flops = count_flops(training)
    float(training.take_step(batches[:1]))  # compiles; read, so that a GPU has done it
    started = time.monotonic()
    for step in range(TIMED_STEPS):
        float(training.take_step([batches[step % len(batches)]]))
    return Plan(
        parameters=sum(parameter.numel() for parameter in training.model.parameters()),
        steps=training.total_steps,
        tokens=round(sum(map(_tokens, batches)) * of_run),
        flops=flops,
        seconds=(time.monotonic() - started) / TIMED_STEPS * training.total_steps * recipe.accumulate,
    )


def count_flops(training: Training) -> float:
    """Return the FLOPs of a whole run, counted on some of its batches; nothing changes."""
    batches = _sampled(training)
    with FlopCounterMode(display=False) as counter, training.autocast():  # in no more memory than training
        for batch in batches:
            training.objective.loss(training.model, training.to_device(batch)).backward()
    training.optimizer.zero_grad()
    return counter.get_total_flops() * training.total_steps * training.recipe.accumulate / len(batches)


def _sampled(training: Training) -> list[Batch]:
    objective = training.objective
    indices = objective.batches(training.recipe.batch_tokens, training.epoch_rng(0))
    sampled = indices[:: max(1, len(indices) // SAMPLED_BATCHES)][:SAMPLED_BATCHES]
    return [objective.collate(some) for some in sampled]


def _tokens(batch: Batch) -> int:
    return len(batch["pixels"]) if "pixels" in batch else sum(batch[name].numel() for name in TOKENS if name in batch)
