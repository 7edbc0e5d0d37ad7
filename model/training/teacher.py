"""What the model that a run begins with says of rows that nobody labelled: asked once, and kept in the run's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from model.architectures import Transformer
from model.progress import with_bar
from model.training.errors import RunError
from model.training.half import autocast
from model.training.objectives import Batch, Classify, Contrastive, ScorePairs


@dataclass(frozen=True)
class Teacher:
    """The model that a run begins with, or None where a run is resumed without it, and what it says of rows."""

    model: Transformer | None
    file: Path  # of the run, which keeps what the model said
    own: Path | None = None  # the file of what the model's own teacher said, where it had one

    def says(
        self, texts: Sequence[str], ask: Callable[[Transformer], NDArray[np.float64]]
    ) -> NDArray[np.float64] | None:
        """Return what it says of texts, (N,): as the file has it, or by asking the model now, which writes the file.

        None where there is neither a file nor a model. Raises `RunError` for a file of other texts.
        """
        if not self.file.exists():
            if self.model is None:
                return None
            found = ask(self.model) if texts else np.zeros(0)
            np.savez(self.file, scores=found, of=_digest(texts))
            return found
        return _kept(self.file, texts)

    def scores_of_its_own(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return what its own teacher said of the same texts, (N,); raises `RunError` where it had none."""
        if self.own is None or not self.own.exists():
            raise RunError(
                "what the run that this one begins with learned of its own teacher is to be learned here too, and it "
                "has no taught.npz; begin with a run that was taught"
            )
        return _kept(self.own, texts)


def _kept(file: Path, texts: Sequence[str]) -> NDArray[np.float64]:
    with np.load(file) as kept:
        if str(kept["of"]) != _digest(texts):
            raise RunError(
                f"{file}: it has scores of other texts than there are now; put the data sets back as they were, train "
                "into another folder, or remove this one to begin anew"
            )
        scores: NDArray[np.float64] = kept["scores"]
    return scores


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def labels_texts(teacher: Transformer, labels: int) -> bool:
    """Tell whether a model gives whole texts so many labels."""
    head = teacher.config.head
    return (teacher.config.architecture, head.kind, head.num_labels) == ("encoder", "classify", labels)


def logits_of(teacher: Transformer, objective: Classify | ScorePairs, count: int, batch_tokens: int) -> torch.Tensor:
    """Return a model's logits for all `count` rows that an objective has encoded, (N, …) in float32 on the CPU."""
    return _outputs_of(teacher, objective, objective.logits, count, batch_tokens)


def cosines_of(teacher: Transformer, objective: Contrastive, count: int, batch_tokens: int) -> torch.Tensor:
    """Return the cosines of a model's vectors for all `count` pairs that were encoded, (N,) in float32 on the CPU."""
    return _outputs_of(teacher, objective, objective.cosines, count, batch_tokens)


def _outputs_of(
    teacher: Transformer,
    objective: Classify | ScorePairs | Contrastive,
    compute: Callable[[Transformer, Batch], torch.Tensor],
    count: int,
    batch_tokens: int,
) -> torch.Tensor:
    device = next(teacher.parameters()).device
    found: dict[int, torch.Tensor] = {}
    batches = objective.batches(batch_tokens, None)
    for indices in with_bar(batches, desc="asking the teacher", unit="batch", dynamic_ncols=True):
        batch = {name: tensor.to(device) for name, tensor in objective.collate(indices).items()}
        with torch.no_grad(), autocast(device):
            outputs = compute(teacher, batch)
        found.update(zip(indices, outputs.float().cpu(), strict=True))
    return torch.stack([found[row] for row in range(count)])
