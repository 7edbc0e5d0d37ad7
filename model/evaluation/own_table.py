"""A table of the user's own, with labels of a classifier that was not fine-tuned on it, as one that was imported."""

from __future__ import annotations

from pathlib import Path

from model.package import Manifest, PackageError
from model.training.errors import DataError
from model.training.own_files import has_part


def check_measurable(data: Path, manifest: Manifest) -> None:
    """Refuse a classifier whose answers a table cannot tell right from wrong, and a folder without one.

    A table has one text and its one label a row. Raises `PackageError` and `DataError`.
    """
    reasons = {
        "it reads images, and a table has texts": manifest.image is not None,
        "it reads pairs of texts, and a table has one text a row": manifest.entailment is not None,
        f"its activation is {manifest.activation}, not softmax, so that its labels do not exclude one another, and a "
        "table has one label a row": manifest.activation != "softmax",
    }
    for reason, holds in reasons.items():
        if holds:
            raise PackageError(f"{manifest.name}: it cannot be measured with a table of your own: {reason}")
    if not has_part(data, "test"):
        raise DataError(
            f"{data}: there is no test data with the labels of {manifest.name}, neither a data set of model/README.md "
            "nor a table of your own (test.csv, .tsv or .jsonl, with columns text and label)"
        )
