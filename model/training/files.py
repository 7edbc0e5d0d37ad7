"""Reading the files of the data sets, and noting which were read."""

from __future__ import annotations

import gzip
import json
import lzma
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, Literal, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from model.training.errors import DataError

Split = Literal["train", "validation"]
SplitOrTest = Split | Literal["test"]  # the last for evaluation alone

_noted: ContextVar[set[Path] | None] = ContextVar("files of data that are noted down", default=None)


@contextmanager
def noting_files() -> Iterator[set[Path]]:
    """Give a set to which every file of data is added that is opened meanwhile, whoever opens it."""
    files: set[Path] = set()
    token = _noted.set(files)
    try:
        yield files
    finally:
        _noted.reset(token)


def open_text(path: Path) -> TextIO:
    """Open a file of UTF-8, compressed where its name ends with `.xz`; raises `DataError` where there is none."""
    # Spreadsheets put a mark before the first byte.
    return cast(TextIO, _opener(path)(_existing(path), "rt", encoding="utf-8-sig", newline="\n"))


def _opener(path: Path) -> Callable[..., IO[Any]]:
    return lzma.open if path.suffix == ".xz" else open


def undecodable(path: Path) -> DataError:
    """Return an error that names the first line of a file that is no UTF-8."""
    with _opener(path)(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                found = f"line {number}: the byte 0x{line[error.start]:02x} is not UTF-8"
                return DataError(f"{path}, {found}; save the file as UTF-8, as spreadsheets can, too")
    return DataError(f"{path}: is not UTF-8")


def not_whole(path: Path, where: str, error: Exception) -> DataError:
    """Return an error that tells that a file cannot be read to its end; `where` is the place, in words."""
    hint = ""
    if isinstance(error, EOFError | lzma.LZMAError):
        hint = "; the file is damaged, or is not compressed with xz, which its name says"
    return DataError(f"{path}, {where}: {error}{hint}")


def check_line_ends(path: Path, first: str) -> None:
    """Raise `DataError` where a table's first line goes on behind a carriage return: all of the table is one line."""
    if "\r" in first.rstrip("\r\n") and not first.endswith("\n"):
        raise DataError(
            f"{path}: its lines end with CR alone, as on old Macs; save it with LF or CR LF at the end of each line"
        )


def _existing(path: Path) -> Path:
    if not path.exists():
        raise DataError(f"{path}: there is no such file; model/README.md tells what the folder of data sets holds")
    files = _noted.get()
    if files is not None:
        files.add(path)
    return path


class Row(dict[str, Any]):
    """Values by column, and the file and line they stand in, for errors that name it."""

    def __init__(self, values: Mapping[str, Any], path: Path, line: int) -> None:
        super().__init__(values)
        self.path, self.line = path, line

    def __missing__(self, column: str) -> Any:
        raise self.error(f"there is no {column}; it has {', '.join(self)}")

    def error(self, problem: str) -> DataError:
        """Return an error that tells what is wrong with this row."""
        return DataError(f"{self.path}, line {self.line}: {problem}")

    def whole(self, text: str) -> str:
        """Return a text of the row; raises `DataError` for one with half of a character, as JSON may escape it."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self.error(f"it has half of a character, {text[error.start]!r}") from None
        return text

    def label(self, labels: Sequence[str]) -> int:
        """Return the number of the row's label among those there are, however accents are coded.

        Raises `DataError`.
        """
        label = str(self["label"]).strip()
        if label in labels:
            return labels.index(label)
        composed = [unicodedata.normalize("NFC", each) for each in labels]
        if (same := unicodedata.normalize("NFC", label)) in composed:
            return composed.index(same)
        raise self.error(f"label is {label!r}; there are {', '.join(labels)}")


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a `.jsonl` or `.tsv` file (TABs, one header line, no quoting), maybe with `.xz` behind.

    Raises `DataError` where there is no file, or at a line that is no row.
    """
    is_table = ".jsonl" not in path.suffixes
    columns: list[str] = []
    number = 0
    try:
        for number, line in enumerate(text_lines(path), start=1):
            if is_table and number == 1:
                check_line_ends(path, line)
                columns = line.rstrip("\r\n").split("\t")
                check_columns(path, columns)
                continue
            if not line.strip("\r\n") and (not is_table or columns[1:]):
                continue
            values = _fields(line, columns) if is_table else dict(json.loads(line))
            yield Row(values, path, number)
    except DataError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: {error}") from error


def text_lines(path: Path) -> Iterator[str]:
    """Yield a file's lines; raises `DataError` where there is no file, or where it is not whole, or no UTF-8."""
    number = 0
    with open_text(path) as file:
        try:
            for number, line in enumerate(file, start=1):  # noqa: B007  # of the last that came
                yield line
        except UnicodeDecodeError as error:
            raise undecodable(path) from error
        except (EOFError, OSError, lzma.LZMAError) as error:
            raise not_whole(path, f"line {number + 1}", error) from error


def check_columns(path: Path, names: Sequence[str]) -> None:
    """Raise `DataError` where two columns of a table have one name; spreadsheets leave some at the end without any."""
    again = [name for name, count in Counter(names).items() if name and count > 1]
    if again:
        raise DataError(f"{path}: there are two columns {again[0]!r}; keep one of them")


def _fields(line: str, columns: list[str]) -> dict[str, str]:
    fields = line.rstrip("\r\n").split("\t")
    if len(fields) != len(columns):
        hint = "; a field holds no TAB and no line end, in quotes or not" if '"' in line else ""
        raise ValueError(f"{len(fields)} fields between TABs; the columns are {', '.join(columns)}{hint}")
    return dict(zip(columns, fields, strict=True))


def read_idx_pair(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (N, H, W) and labels (N,) of a set in MNIST's file format; `part` is "train" or "t10k"."""
    images, labels = idx_paths(folder, part)
    return _read_idx(images), _read_idx(labels)


def idx_paths(folder: Path, part: str) -> tuple[Path, Path]:
    """Return the files of a part's images and labels."""
    return folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz"


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes: two zeros, the type, the number of dimensions, the dimensions, the values."""
    compressed = _existing(path).read_bytes()
    try:
        content = gzip.decompress(compressed)
        dimensions = content[3]
        shape = np.frombuffer(content, ">i4", dimensions, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (EOFError, OSError, ValueError, IndexError, zlib.error) as error:
        raise DataError(f"{path}: {error}; it is not whole, or not in MNIST's file format") from error
