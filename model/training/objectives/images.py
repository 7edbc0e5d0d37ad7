"""One label for an image."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.package import ImageFormat
from model.package.images import normalised
from model.training.batches import equal_batches
from model.training.objectives.objective import Batch, mean_of

SHIFT = 1  # pixel in either direction; two make learning far slower


@dataclass
class ClassifyImages:
    """Cross-entropy of one label; training images are shifted, and mirrored half of the time."""

    image: ImageFormat
    tokens: int  # of one image: CLS and its patches
    label_smoothing: float
    metric: str = field(default="accuracy", init=False)
    higher_is_better: bool = field(default=True, init=False)
    has_fixed_shapes: bool = field(default=True, init=False)

    def encode(self, rows: Sequence[tuple[NDArray[np.uint8], int]]) -> None:
        """Take (grey image (H, W), label) rows."""
        self.images = np.stack([image for image, _ in rows])
        self.labels = np.array([label for _, label in rows])
        self.seed: int | None = None

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group images at random; without `rng` in their order, and not augmented."""
        self.seed = rng.getrandbits(32) if rng else None
        return equal_batches(range(len(self.labels)), batch_tokens // self.tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return pixels (B, 1, H, W), normalised, and labels (B,)."""
        images = self.images[list(indices)]
        if self.seed is not None:
            images = augmented(images, np.random.default_rng([self.seed, indices[0]]))
        pixels = normalised(images[:, None], self.image)
        return {"pixels": torch.from_numpy(pixels), "labels": torch.from_numpy(self.labels[list(indices)])}

    def weight(self, batch: Batch) -> int:
        """Count the images."""
        return len(batch["labels"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean label-smoothed cross-entropy of the labels."""
        return cross_entropy(model(batch["pixels"]).float(), batch["labels"], label_smoothing=self.label_smoothing)

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int]:
        """Count the correct labels."""
        return float((model(batch["pixels"]).argmax(-1) == batch["labels"]).sum()), len(batch["labels"])

    def summarise(self, scores: Sequence[tuple[float, int]]) -> dict[str, float]:
        """Name the score: accuracy, 0 to 1."""
        return {"accuracy": mean_of(scores)}


def augmented(images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Shift each of the images (B, H, W) by up to `SHIFT` pixels, filling with black; mirror half of them at random."""
    height, width = images.shape[1:]
    padded = np.pad(images, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)))
    down, right = rng.integers(0, 2 * SHIFT + 1, (2, len(images)))
    rows = down[:, None] + np.arange(height)
    columns = right[:, None] + np.arange(width)
    columns = np.where(rng.random(len(images))[:, None] < 0.5, columns, columns[:, ::-1])
    return padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
