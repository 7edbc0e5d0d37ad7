"""What the cards of all models have: figures by length, and answers that nobody picked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model.evaluation.calibration import Mask
from model.package import Example, Slice

EXAMPLES = 20  # of a model at most, evenly over its data sets
WRONG_ANSWERS = 5  # of each data set
MAX_SHOWN = 200  # characters of an input


def by_length(lengths: NDArray[np.int64], unit: str = "tokens") -> dict[str, Mask]:
    """Return the quarters of rows by their lengths (N,), each as a mask (N,); rows of one length stay together."""
    parts, first = {}, lengths.min()
    for last in np.unique(np.quantile(lengths, [0.25, 0.5, 0.75, 1], method="lower")):
        parts[f"{first} to {last} {unit}"] = (first <= lengths) & (lengths <= last)
        first = last + 1
    return parts


def slices(dataset: str, metric: str, parts: Mapping[str, Mask], measure: Callable[[Mask], float]) -> list[Slice]:
    """Measure each part of a data set that has rows."""
    return [
        Slice(dataset=dataset, part=name, rows=int(rows.sum()), metric=metric, value=round(measure(rows), 4))
        for name, rows in parts.items()
        if rows.any()
    ]


def evenly(rows: Sequence[int] | NDArray[np.int64], most: int) -> list[int]:
    """Return some rows, from the first to the last at even distances, so that nobody picks them."""
    places = np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)
    return np.asarray(rows, np.int64)[places].tolist()


def examples(
    count: int, datasets: int, wrong: Sequence[int] | NDArray[np.int64], example: Callable[[int], Example]
) -> tuple[list[Example], list[Example]]:
    """Return examples of a data set of `count` rows, one of `datasets`, and of its wrong answers."""
    unpicked, mistaken = evenly(range(count), EXAMPLES // datasets), evenly(wrong, WRONG_ANSWERS)
    return [example(row) for row in unpicked], [example(row) for row in mistaken]


def shown(text: str) -> str:
    """Return a text, or its beginning where it is long."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN].rstrip()} …"
