"""What the model that a run begins with says of rows that nobody labelled: asked once, and kept in the run's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from model.architectures import Transformer
from model.training.errors import RunError
from model.training.objectives import Classify, ScorePairs


def said_once(
    file: Path, texts: Sequence[str], said: Callable[[], NDArray[np.float64]] | None
) -> NDArray[np.float64] | None:
    """Return what a model says of texts, (N,), as it was written to a file of the run, or to be written now.

    None where neither there is a file nor a model, whose call `said` is. Raises `RunError` for a file of other texts.
    """
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    if not file.exists():
        if said is None:
            return None
        found = said() if texts else np.zeros(0)
        np.savez(file, scores=found, of=digest)
        return found
    with np.load(file) as kept:
        if str(kept["of"]) != digest:
            raise RunError(
                f"{file}: it has scores of other texts than there are now; put the data sets back as they were, train "
                "into another folder, or remove this one to begin anew"
            )
        scores: NDArray[np.float64] = kept["scores"]
    return scores


def labels_texts(teacher: Transformer, labels: int) -> bool:
    """Tell whether a model gives whole texts so many labels."""
    head = teacher.config.head
    return (teacher.config.architecture, head.kind, head.num_labels) == ("encoder", "classify", labels)


def logits_of(teacher: Transformer, objective: Classify | ScorePairs, count: int, batch_tokens: int) -> torch.Tensor:
    """Return the teacher's logits for all `count` rows that an objective has encoded, (N, …) in float32 on the CPU."""
    device = next(teacher.parameters()).device
    found: dict[int, torch.Tensor] = {}
    batches = objective.batches(batch_tokens, None)
    for indices in tqdm(batches, desc="asking the teacher", unit="batch", dynamic_ncols=True):
        batch = {name: tensor.to(device) for name, tensor in objective.collate(indices).items()}
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
            logits = objective.logits(teacher, batch)
        found.update(zip(indices, logits.float().cpu(), strict=True))
    return torch.stack([found[row] for row in range(count)])
