"""A package opened to be measured, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.export.naive import open_package, text_inputs
from model.package import Figure, Manifest, PackageTokenizer
from model.package.manifest import TOKENIZER_FILE
from model.progress import with_bar
from model.training.batches import length_batches
from model.training.errors import DataError
from model.training.files import read_rows

BATCH_TOKENS = 4096


class Evaluation:
    """A package opened for evaluation, and the data sets' folder."""

    def __init__(self, package: Path, data: Path, limit: int | None = None) -> None:
        self.folder, self.manifest = package, Manifest.load(package)
        self.data = data
        self.limit = limit
        if self.manifest.image is None:
            self.tokenizer = PackageTokenizer.load(package / TOKENIZER_FILE, self.manifest.pair_text)
        self.graphs = open_package(package, self.manifest)

    def rows(self, file: str) -> list[dict[str, Any]]:
        """Read the first rows of a data set's file, `limit` at most."""
        return list(islice(read_rows(self.data / file), self.limit))

    def figure(self, dataset: str, metric: str, value: float) -> Figure:
        """Make a figure of a data set's first rows; a bounded data set is named so."""
        return self.figure_of(dataset if self.limit is None else f"{dataset}, first {self.limit}", metric, value)

    def figure_of(self, rows: str, metric: str, value: float) -> Figure:
        """Make a figure of this package's precision; `rows` says of which rows of which data set."""
        return Figure(dataset=rows, metric=metric, value=round(value, 4), precision=self.manifest.precision)

    def run_texts(
        self, rows: Sequence[str | tuple[str, str]], output: str
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return an encoder's output for each text or pair, and how many tokens each has.

        Of what is longer than `max_input_tokens` only so many are read.
        """
        if not rows:
            raise DataError(f"{self.data}: the test data of {self.manifest.task} have no row to measure with")
        longest, side = self.manifest.limits.max_input_tokens, self.manifest.truncation_side
        whole = [self.tokenizer.encode(*((row,) if isinstance(row, str) else row)) for row in rows]
        encodings = [encoding.shortened(longest, side=side) for encoding in whole]
        outputs: list[Any] = [None] * len(rows)
        lengths = [len(encoding.ids) for encoding in encodings]
        read = [self.manifest.length_read(encoding.ids) for encoding in encodings]
        for batch in with_bar(length_batches(lengths, BATCH_TOKENS, None), desc=self.manifest.name):
            inputs = text_inputs(
                [encodings[index].ids[: read[index]] for index in batch],
                [encodings[index].segment_ids[: read[index]] for index in batch],
            )
            for index, row in zip(batch, self.graphs["encoder"].run(inputs)[output], strict=True):
                outputs[index] = row
        return np.stack(outputs), np.array([len(encoding.ids) for encoding in whole])


@dataclass(frozen=True)
class Measured:
    """Figures, and what else of the manifest was measured with them, by its fields' names."""

    figures: list[Figure]
    fields: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)  # that go with them into the package
    remarks: list[str] = field(default_factory=list)  # on the figures, for whoever reads them
