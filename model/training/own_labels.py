"""A classifier of texts into labels of your own: what its folder of data holds, and the recipe that follows from it.

The folder has `train`, and may have `validation` and `test`: tables of texts and labels, as `.csv`, `.tsv` or `.jsonl`,
compressed with xz (`.xz` behind that) or not. Without `validation` a tenth of each label's texts is kept for it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from model.card import Card
from model.package import Dataset
from model.package.files import sha256_of
from model.package.manifest import NAME_PATTERN
from model.training.errors import DataError
from model.training.files import Row, SplitOrTest
from model.training.own_files import check_names, file_of, has_part, label_of, rows_of, text_of
from model.training.recipe import Recipe
from model.training.recipes import finetune_classify

RECIPE = "finetune-classify"
KEPT = 10  # of so many texts of a label one is kept for validation, where there is no file for it
MOST_LABELS = 1000
TEXTS_A_BATCH = 32  # at most
LEAST_STEPS = 300  # of a run; few texts are seen more often
EPOCHS = 4, 100  # least and most
EVALUATIONS = 12  # of a run
SHOWN = 5  # labels in a description
CARD_FIELDS = ("name", "task", "description", "licence", "not_for", "labels")  # of a card, as of a manifest


def own_classifier(data: Path) -> Recipe:
    """Return the recipe that learns the labels in a folder's texts.

    Raises `DataError` where there are no texts, fewer than two labels, or more than `MOST_LABELS`.
    """
    labels = labels_of(data)
    texts = read_own_texts(data, "train")
    epochs = min(max(EPOCHS[0], LEAST_STEPS * TEXTS_A_BATCH / len(texts)), EPOCHS[1])
    steps = max(1, round(epochs * len(texts) / TEXTS_A_BATCH))
    return finetune_classify(
        RECIPE,
        _card(data, labels, len(texts)),
        read_own_texts,
        most_texts=TEXTS_A_BATCH,
        epochs=epochs,
        warmup_steps=max(1, min(50, steps // 10)),
        evaluate_every=max(1, steps // EVALUATIONS),
        starts_from=None,
    )


def labels_of(data: Path) -> tuple[str, ...]:
    """Return the labels of a folder's training texts in their order; raises `DataError`."""
    check_names(data)
    return _labels_in(data, rows_of(data, "train"))


def _labels_in(data: Path, rows: Iterable[Row]) -> tuple[str, ...]:
    labels = sorted({label_of(row) for row in rows})
    if not 2 <= len(labels) <= MOST_LABELS:
        raise DataError(
            f"{file_of(data, 'train')}: its texts have {len(labels)} labels; there must be 2 to {MOST_LABELS:,} "
            "(column label), and a text in column text"
        )
    return tuple(labels)


def read_own_texts(data: Path, split: SplitOrTest) -> list[tuple[str, int]]:
    """Read texts with the numbers of their labels.

    What is tested on is neither validated nor trained on, and what is validated on is not trained on, if it is in
    those files too, in whatever case, and with whatever spaces. Raises `DataError` where a file is missing,
    a text is empty, a label is not one of `train`'s, or nothing is left of one to train or to validate on, and where a
    file is there that is called as a part and is not read.
    """
    check_names(data)
    train = list(rows_of(data, "train"))
    labels = _labels_in(data, train)

    if split == "test":
        return read_tested(data, labels)

    def read(part: str) -> list[tuple[str, int]]:
        return [(text_of(row), row.label(labels)) for row in (train if part == "train" else rows_of(data, part))]

    tested = {same(text) for text, _ in read("test")} if has_part(data, "test") else set()

    def untested(rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
        return [row for row in rows if same(row[0]) not in tested]

    rows, has_file = read("train"), has_part(data, "validation")
    # Of all rows, so that those that are kept do not depend on what is tested on.
    kept = untested(read("validation") if has_file else _a_part_of_each_label(rows))
    if split == "validation":
        if not kept and has_file:
            raise DataError(f"{file_of(data, 'validation')}: there are no texts in it that are not tested on, too")
        if not kept:
            raise DataError(
                f"{file_of(data, 'train')}: no label has {KEPT} texts, of which one would be kept for validation and "
                "is not tested on; put some into validation.csv"
            )
        return kept
    validated = {same(text) for text, _ in kept}
    left = [row for row in untested(rows) if same(row[0]) not in validated]
    missing = sorted(set(range(len(labels))) - {label for _, label in left})
    if missing:
        raise DataError(
            f"{file_of(data, 'train')}: every text with label {labels[missing[0]]!r} is validated or tested on, too"
        )
    return left


def read_tested(data: Path, labels: Sequence[str]) -> list[tuple[str, int]]:
    """Read the texts of a folder's test file with the numbers of their labels among those there are.

    Raises `DataError` where there are no texts, one is empty, or a label is another.
    """
    rows = [(text_of(row), row.label(labels)) for row in rows_of(data, "test")]
    if not rows:
        raise DataError(f"{file_of(data, 'test')}: there are no texts in it")
    return rows


def same(text: str) -> str:
    """Return what is the same of texts that differ in case, spaces and how accents are coded alone, as models may."""
    return " ".join(unicodedata.normalize("NFC", text.lower()).split())


def check_unlearned(data: Path, learned: Mapping[str, str]) -> None:
    """Raise `DataError` where a model, which learned from files of these hashes, may have learned what it is tested on.

    Of another file for training others are kept for validation; what is tested on was left out of the one there was.
    """
    for part in ("train", "validation"):
        if not has_part(data, part) and any(name.startswith(f"{part}.") for name in learned):
            raise DataError(
                f"{data}: the model learned beside a file of {part}, which is not there, so that other texts would be "
                "validated on now, which it has learned; put it back"
            )
        for path in [file_of(data, part)] if has_part(data, part) else []:
            if learned.get(path.name) != sha256_of(path):
                raise DataError(
                    f"{path}: it is not the file that the model learned from, which may have learned what would be "
                    "validated on now; put that one back"
                )
    if not has_part(data, "test") or learned.get(file_of(data, "test").name) == sha256_of(file_of(data, "test")):
        return
    learned_from = (part for part in ("train", "validation") if has_part(data, part))
    known = {same(text_of(row)) for part in learned_from for row in rows_of(data, part)}
    again = sum(same(text_of(row)) in known for row in rows_of(data, "test"))
    if again:
        raise DataError(
            f"{file_of(data, 'test')}: the model has learned {again} of its texts, which are in train or validation, "
            "too, and were not tested on then; take them out of it"
        )


def _a_part_of_each_label(rows: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return every tenth text of each label: labels may come in turn, or one behind the other."""
    seen = Counter[int]()
    kept = []
    for text, label in rows:
        seen[label] += 1
        if seen[label] % KEPT == 0:
            kept.append((text, label))
    return kept


def card_of(noted: dict[str, Any]) -> Card:
    """Return the card of such a classifier from what its run noted of it."""
    fields = {field: noted[field] for field in CARD_FIELDS}
    return Card(**{**fields, "labels": tuple(noted["labels"])}, training_data=())


def _card(data: Path, labels: tuple[str, ...], texts: int) -> Card:
    name = re.sub(r"[^a-z0-9._-]+", "-", data.resolve().name.lower()).strip("-._")[:63]
    shown = ", ".join(labels[:SHOWN]) + (f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else "")
    return Card(
        name=name if re.fullmatch(NAME_PATTERN, name) else "classifier",
        task="classify",
        description=f"Tells which of {len(labels)} labels a text has: {shown}.",
        licence="that of its training data",
        training_data=(Dataset(name=f"{data.resolve().name}, {texts:,} texts", licence="not stated"),),
        labels=labels,
    )
