"""The files of a user's own texts and labels: what they are called, and how each kind of table is read."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain
from lzma import LZMAError
from pathlib import Path

from model.training.errors import DataError
from model.training.files import (
    Row,
    SplitOrTest,
    check_columns,
    check_line_ends,
    not_whole,
    open_text,
    read_rows,
    undecodable,
)

KINDS = tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".jsonl") for packed in ("", ".xz"))
PARTS: tuple[SplitOrTest, ...] = ("train", "validation", "test")
# Names of files that are meant as a part: the texts of those that are not read would be trained on where they are in
# another file, too.
MEANT_AS_A_PART = re.compile(
    r"(train(ing)?|val(id(ate|ations?)?)?|dev(elopment)?|tests?|testing)(sets?|data|[^a-z.][^.]*)?"
    r"\.(csv|tsv|jsonl?|ndjson|parquet|xlsx?|txt)(\..*)?",
    re.IGNORECASE,
)
TAB = "\t"
SEPARATORS = {",": "commas", ";": "semicolons", TAB: "TABs"}
LONGEST = 2**31 - 1  # characters of a field
QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a field, and what is in it


def file_of(data: Path, part: str) -> Path:
    """Return the file for a part; raises `DataError` where there is none, or more than one."""
    found = [path for path in (data / f"{part}{kind}" for kind in KINDS) if path.exists()]
    if len(found) > 1:
        raise DataError(f"{data}: there are {' and '.join(path.name for path in found)}; keep one of them")
    if not found:
        raise DataError(f"{data}: there is no {part}.csv, .tsv or .jsonl, with columns text and label")
    return found[0]


def has_part(data: Path, part: str) -> bool:
    """Tell whether a folder has a file of its own for a part."""
    return any((data / f"{part}{kind}").exists() for kind in KINDS)


def check_names(data: Path) -> None:
    """Refuse files that are called as a part and are not read; raises `DataError`."""
    read = {f"{part}{kind}" for part in PARTS for kind in KINDS}
    files = sorted(path.name for path in data.iterdir() if path.is_file())
    unread = [name for name in files if MEANT_AS_A_PART.fullmatch(name) and name not in read]
    if unread:
        raise DataError(
            f"{data}: {', '.join(unread)} would not be read, and its texts might be trained on; what is read is called "
            f"{', '.join(PARTS)}, in small letters, with .csv, .tsv or .jsonl behind it, and then maybe .xz; rename or "
            "convert it, or move it out of the folder"
        )


def rows_of(data: Path, part: str) -> Iterable[Row]:
    """Return the rows of the file for a part; raises `DataError` where there is none."""
    path = file_of(data, part)
    if ".csv" in path.suffixes:
        return _csv_rows(path)
    return _unquoted_rows(path) if ".tsv" in path.suffixes else read_rows(path)


def _unquoted_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a table with TABs, of which some programs put fields in quotes and others none."""
    for row in read_rows(path):
        if len(row) == 1:
            _check_separator(path, next(iter(row)), TAB)
        yield Row({_unquoted(name): _unquoted(value) for name, value in row.items()}, path, row.line)


def _check_separator(path: Path, header: str, separator: str) -> None:
    """Raise `DataError` where the line of column names has another separator, and not that of its kind of table."""
    found = next((other for other in SEPARATORS if other in header), None)
    if separator not in header and found is not None:
        as_tsv = f", or {'call it' if found == TAB else 'with TABs as'} .tsv" if separator != TAB else ""
        raise DataError(
            f"{path}: its columns are separated by {SEPARATORS[found]}; save it with {SEPARATORS[separator]}{as_tsv}"
        )


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
        reader: csv.DictReader[str] | None = None
        try:
            header = file.readline()
            check_line_ends(path, header)
            _check_separator(path, header, ",")
            reader = csv.DictReader(chain([header], file), skipinitialspace=skips_spaces, strict=True)
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
        except (EOFError, LZMAError) as error:
            raise not_whole(path, f"behind line {0 if reader is None else reader.line_num}", error) from error
        except csv.Error as error:
            assert reader is not None
            hint = "; a field that begins with a quote ends with one, and the quotes within are doubled"
            raise DataError(f"{path}, behind line {reader.line_num}: {error}{hint}") from error


def text_of(row: Row) -> str:
    """Return the text of a row; raises `DataError` for one that is empty."""
    text = row["text"]
    if not isinstance(text, str) or not text.strip():
        raise row.error("its text is empty")
    return row.whole(text)


def label_of(row: Row) -> str:
    """Return the label of a row, its accents coded in one way; raises `DataError` for what is no label."""
    label = row["label"]
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise row.error(f"its label is {label!r}; it must be a text or a whole number")
    return unicodedata.normalize("NFC", row.whole(str(label).strip()))
