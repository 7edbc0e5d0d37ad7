"""A classifier of texts into labels of your own: what its folder of data holds, and the recipe that follows from it.

The folder has `train`, and may have `validation` and `test`: tables of texts and labels, as `.csv`, `.tsv` or `.jsonl`,
compressed with xz (`.xz` behind that) or not. Without `validation` a tenth of each label's texts is kept for it.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from lzma import LZMAError
from pathlib import Path
from typing import Any

from model.card import Card
from model.package import Dataset
from model.package.files import sha256_of
from model.package.manifest import NAME_PATTERN
from model.training.errors import DataError
from model.training.files import Row, SplitOrTest, check_columns, open_text, read_rows, undecodable
from model.training.recipe import Recipe
from model.training.recipes import finetune_classify

RECIPE = "finetune-classify"
KINDS = tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".jsonl") for packed in ("", ".xz"))
LONGEST = 2**31 - 1  # characters of a field
KEPT = 10  # of so many texts of a label one is kept for validation, where there is no file for it
MOST_LABELS = 1000
TEXTS_A_BATCH = 32  # at most
LEAST_STEPS = 300  # of a run; few texts are seen more often
EPOCHS = 4, 100  # least and most
EVALUATIONS = 12  # of a run
QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a field, and what is in it
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
    return _labels_in(data, _rows(data, "train"))


def _labels_in(data: Path, rows: Iterable[Row]) -> tuple[str, ...]:
    labels = sorted({_label(row) for row in rows})
    if not 2 <= len(labels) <= MOST_LABELS:
        raise DataError(
            f"{_file(data, 'train')}: its texts have {len(labels)} labels; there must be 2 to {MOST_LABELS:,} "
            "(column label), and a text in column text"
        )
    return tuple(labels)


def read_own_texts(data: Path, split: SplitOrTest) -> list[tuple[str, int]]:
    """Read texts with the numbers of their labels.

    What is tested on is neither validated nor trained on, and what is validated on is not trained on, if it is in
    those files too, in whatever case, and with whatever spaces. Raises `DataError` where a file is missing,
    a text is empty, a label is not one of `train`'s, or nothing is left of one to train or to validate on.
    """
    train = list(_rows(data, "train"))
    labels = _labels_in(data, train)

    if split == "test":
        return read_tested(data, labels)

    def read(part: str) -> list[tuple[str, int]]:
        return [(_text(row), row.label(labels)) for row in (train if part == "train" else _rows(data, part))]

    tested = {_same(text) for text, _ in read("test")} if has_part(data, "test") else set()

    def untested(rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
        return [row for row in rows if _same(row[0]) not in tested]

    rows, has_file = read("train"), has_part(data, "validation")
    # Of all rows, so that those that are kept do not depend on what is tested on.
    kept = untested(read("validation") if has_file else _a_part_of_each_label(rows))
    if split == "validation":
        if not kept and has_file:
            raise DataError(f"{_file(data, 'validation')}: there are no texts in it that are not tested on, too")
        if not kept:
            raise DataError(
                f"{_file(data, 'train')}: no label has {KEPT} texts, of which one would be kept for validation and is "
                "not tested on; put some into validation.csv"
            )
        return kept
    validated = {_same(text) for text, _ in kept}
    left = [row for row in untested(rows) if _same(row[0]) not in validated]
    missing = sorted(set(range(len(labels))) - {label for _, label in left})
    if missing:
        raise DataError(
            f"{_file(data, 'train')}: every text with label {labels[missing[0]]!r} is validated or tested on, too"
        )
    return left


def read_tested(data: Path, labels: Sequence[str]) -> list[tuple[str, int]]:
    """Read the texts of a folder's test file with the numbers of their labels among those there are.

    Raises `DataError` where there are no texts, one is empty, or a label is another.
    """
    rows = [(_text(row), row.label(labels)) for row in _rows(data, "test")]
    if not rows:
        raise DataError(f"{_file(data, 'test')}: there are no texts in it")
    return rows


def _same(text: str) -> str:
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
        for path in [_file(data, part)] if has_part(data, part) else []:
            if learned.get(path.name) != sha256_of(path):
                raise DataError(
                    f"{path}: it is not the file that the model learned from, which may have learned what would be "
                    "validated on now; put that one back"
                )
    if not has_part(data, "test") or learned.get(_file(data, "test").name) == sha256_of(_file(data, "test")):
        return
    known = {_same(_text(row)) for part in ("train", "validation") if has_part(data, part) for row in _rows(data, part)}
    again = sum(_same(_text(row)) in known for row in _rows(data, "test"))
    if again:
        raise DataError(
            f"{_file(data, 'test')}: the model has learned {again} of its texts, which are in train or validation, "
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


def _file(data: Path, part: str) -> Path:
    found = [path for path in (data / f"{part}{kind}" for kind in KINDS) if path.exists()]
    if len(found) > 1:
        raise DataError(f"{data}: there are {' and '.join(path.name for path in found)}; keep one of them")
    if not found:
        raise DataError(f"{data}: there is no {part}.csv, .tsv or .jsonl, with columns text and label")
    return found[0]


def has_part(data: Path, part: str) -> bool:
    """Tell whether a folder has a file of its own for a part."""
    return any((data / f"{part}{kind}").exists() for kind in KINDS)


def _rows(data: Path, part: str) -> Iterable[Row]:
    path = _file(data, part)
    if ".csv" in path.suffixes:
        return _csv_rows(path)
    return _unquoted_rows(path) if ".tsv" in path.suffixes else read_rows(path)


def _unquoted_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a table with TABs, of which some programs put fields in quotes and others none."""
    for row in read_rows(path):
        yield Row({_unquoted(name): _unquoted(value) for name, value in row.items()}, path, row.line)


def _unquoted(field: str) -> str:
    """Return a field as it was before it was put in quotes, if it is whole in them."""
    found = QUOTED.fullmatch(field)
    return found[1].replace('""', '"') if found else field


def _csv_rows(path: Path) -> list[Row]:
    """Return the rows of a table with commas, quoted as RFC 4180 has it, behind one line of column names.

    Behind a comma there may be a space before the quotes, which are then either the field's or within a text.
    """
    try:
        return list(_csv_rows_as(path, skips_spaces=True))
    except DataError as error:
        if not isinstance(error.__cause__, csv.Error):
            raise
    return list(_csv_rows_as(path, skips_spaces=False))


def _csv_rows_as(path: Path, *, skips_spaces: bool) -> Iterator[Row]:
    with open_text(path) as file:
        csv.field_size_limit(LONGEST)  # else 131,072 characters, less than other kinds of files may have in a field
        reader = csv.DictReader(file, skipinitialspace=skips_spaces, strict=True)
        try:
            reader.fieldnames = [_unquoted(name.strip()) for name in reader.fieldnames or ()]
            check_columns(path, reader.fieldnames)
            for values in reader:
                row = Row(values, path, reader.line_num)
                if None in values or None in values.values():
                    raise row.error(f"it has fewer or more fields than columns: {', '.join(reader.fieldnames or ())}")
                # What has the space before its quotes was taken as it is.
                bare = {name: _unquoted(value.strip()) for name, value in values.items() if value.startswith(" ")}
                yield Row({**values, **bare}, path, reader.line_num)
        except UnicodeDecodeError as error:
            raise undecodable(path) from error
        except (csv.Error, EOFError, LZMAError) as error:
            hint = "; a field that begins with a quote ends with one, and the quotes within are doubled"
            raise DataError(f"{path}, behind line {reader.line_num}: {error}{hint}") from error


def _text(row: Row) -> str:
    text = row["text"]
    if not isinstance(text, str) or not text.strip():
        raise row.error("its text is empty")
    return row.whole(text)


def _label(row: Row) -> str:
    label = row["label"]
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise row.error(f"its label is {label!r}; it must be a text or a whole number")
    return row.whole(str(label).strip())
