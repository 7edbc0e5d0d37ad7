"""Reading the data sets and making batches of similar lengths."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from model.training.errors import DataError


def open_text(path: Path) -> TextIO:
    """Open a compressed file of UTF-8; raises `DataError` where there is none."""
    return lzma.open(_existing(path), "rt", encoding="utf-8", newline="\n")


def _existing(path: Path) -> Path:
    if not path.exists():
        raise DataError(f"{path}: there is no such file; model/README.md tells what the folder of data sets holds")
    return path


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a `.jsonl.xz` or `.tsv.xz` file (TAB-separated, one header line, no quoting)."""
    with open_text(path) as file:
        if ".jsonl" in path.suffixes:
            yield from (json.loads(line) for line in file)
            return
        columns = next(file).rstrip("\n").split("\t")
        for line in file:
            yield dict(zip(columns, line.rstrip("\n").split("\t"), strict=True))


def read_idx_pair(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (N, H, W) and labels (N,) of a set in MNIST's file format; `part` is "train" or "t10k"."""
    return _read_idx(folder / f"{part}-images-idx3-ubyte.gz"), _read_idx(folder / f"{part}-labels-idx1-ubyte.gz")


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes: two zeros, the type, the number of dimensions, the dimensions, the values."""
    with gzip.open(_existing(path)) as file:
        content = file.read()
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def length_batches(
    lengths: Sequence[int], batch_tokens: int, rng: random.Random | None, most: int | None = None
) -> list[list[int]]:
    """Group indices of similar length so that longest × count stays within `batch_tokens`, and count within `most`.

    With `rng` the groups differ from epoch to epoch: equal lengths are shuffled, and then the batches. Without it the
    order is by length, for evaluation.
    """
    noise = rng.random if rng else (lambda: 0.0)
    order = sorted(range(len(lengths)), key=lambda index: lengths[index] + noise())
    batches: list[list[int]] = []
    batch: list[int] = []
    for index in order:  # ascending, so the newcomer is always the longest
        if batch and ((len(batch) + 1) * lengths[index] > batch_tokens or len(batch) == most):
            batches.append(batch)
            batch = []
        batch.append(index)
    if batch:
        batches.append(batch)
    if rng:
        rng.shuffle(batches)
    return batches
