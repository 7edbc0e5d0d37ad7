"""Reading the data sets and making batches of similar lengths."""

from __future__ import annotations

import gzip
import json
import lzma
import random
import zlib
from collections import Counter, deque
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from model.training.errors import DataError

Split = Literal["train", "validation"]

Array = NDArray[np.int64]
Item = TypeVar("Item")

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
    opened = lzma.open if path.suffix == ".xz" else open
    # Spreadsheets put a mark before the first byte.
    return cast(TextIO, opened(_existing(path), "rt", encoding="utf-8-sig", newline="\n"))


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
        """Return the number of the row's label among those there are; raises `DataError`."""
        label = str(self["label"]).strip()
        if label not in labels:
            raise self.error(f"label is {label!r}; there are {', '.join(labels)}")
        return labels.index(label)


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a `.jsonl` or `.tsv` file (TABs, one header line, no quoting), maybe with `.xz` behind.

    Raises `DataError` where there is no file, or at a line that is no row.
    """
    is_table = ".jsonl" not in path.suffixes
    columns: list[str] = []
    number = 0
    with open_text(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                if is_table and number == 1:
                    columns = line.rstrip("\r\n").split("\t")
                    check_columns(path, columns)
                    continue
                values = _fields(line, columns) if is_table else dict(json.loads(line))
                yield Row(values, path, number)
        except (ValueError, TypeError, EOFError, RecursionError, lzma.LZMAError) as error:
            raise DataError(f"{path}, line {number}: {error}") from error


def check_columns(path: Path, names: Sequence[str]) -> None:
    """Raise `DataError` where two columns of a table have one name; spreadsheets leave some at the end without any."""
    again = [name for name, count in Counter(names).items() if name and count > 1]
    if again:
        raise DataError(f"{path}: there are two columns {again[0]!r}; keep one of them")


def _fields(line: str, columns: list[str]) -> dict[str, str]:
    fields = line.rstrip("\r\n").split("\t")
    if len(fields) != len(columns):
        raise ValueError(f"{len(fields)} fields between TABs; the columns are {', '.join(columns)}")
    return dict(zip(columns, fields, strict=True))


def read_idx_pair(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (N, H, W) and labels (N,) of a set in MNIST's file format; `part` is "train" or "t10k"."""
    return _read_idx(folder / f"{part}-images-idx3-ubyte.gz"), _read_idx(folder / f"{part}-labels-idx1-ubyte.gz")


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


def length_batches(
    lengths: Sequence[int] | Array,
    batch_tokens: int,
    rng: random.Random | None,
    most: int | None = None,
    apart: Sequence[frozenset[Hashable]] | None = None,
) -> list[list[int]]:
    """Group indices of similar length so that longest × count stays within `batch_tokens`, and count within `most`.

    Lengths are (N,) or, where each has several sides that are padded apart, (N, sides): the longest counts, and those
    that are alike in all sides lie together. With `rng` the groups differ from epoch to epoch: equal lengths are
    shuffled, and then the batches. Without it the order is by length, for evaluation. What has something in common in
    `apart` is never in one batch; those that must wait for another go into the next one that has room, so batches are
    as full as they would be without.
    """
    sides = np.atleast_2d(np.asarray(lengths, np.float64).T)
    lasting = sides.max(axis=0)
    noise = np.random.default_rng(rng.getrandbits(64)).random(len(lengths)) if rng else np.zeros(len(lengths))
    order = np.lexsort((noise, *sides[::-1], lasting))  # ascending, so a batch's last is its longest
    most = most or len(lengths)
    if apart is None:
        batches = _in_order(order, lasting, batch_tokens, most)
    else:
        batches = _kept_apart(order.tolist(), lasting, batch_tokens, most, apart)
    if rng:
        rng.shuffle(batches)
    return batches


def _in_order(order: Array, lengths: NDArray[np.float64], batch_tokens: int, most: int) -> list[list[int]]:
    """Cut an order into batches, each as full as it may be."""
    room = np.minimum(most, batch_tokens // np.maximum(1, lengths[order]))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        others = room[start + 1 : start + max(1, int(room[start]))]
        does_fit = (
            np.arange(1, len(others) + 1) < others
        )  # up to the first that does not: room shrinks, the batch grows
        count = 1 + int(does_fit.sum())
        batches.append(order[start : start + count].tolist())
        start += count
    return batches


def _kept_apart(
    order: list[int], lengths: Sequence[int] | Array, batch_tokens: int, most: int, apart: Sequence[frozenset[Hashable]]
) -> list[list[int]]:
    """Fill batches in an order, with several open at a time: what has something in common waits for another."""
    full: list[list[int]] = []
    filling: list[tuple[list[int], set[Hashable]]] = []  # one, and as many more as there are things to keep apart
    for index in order:
        has_room = min(most, batch_tokens // max(1, lengths[index]))
        full += [batch for batch, _ in filling if len(batch) >= has_room]
        filling = [each for each in filling if len(each[0]) < has_room]
        place = next((each for each in filling if each[1].isdisjoint(apart[index])), None)
        if place is None:
            place = [], set()
            filling.append(place)
        place[0].append(index)
        place[1].update(apart[index])
    return full + [batch for batch, _ in filling]


def equal_batches(indices: Sequence[int] | Array, size: int, rng: random.Random | None) -> list[list[int]]:
    """Group indices of things of one length, `size` at a time.

    With `rng` they are shuffled, and what does not fill a batch is left out, unless nothing else is there: all batches
    of an epoch have the same shape then.
    """
    order = np.asarray(indices)
    size = max(1, size)
    if rng:
        order = np.random.default_rng(rng.getrandbits(64)).permutation(order)
        order = order[: max(size, len(order) // size * size)]
    return [order[start : start + size].tolist() for start in range(0, len(order), size)]


def prefetched(items: Iterator[Item], ahead: int) -> Generator[Item, None, None]:
    """Yield endless items that another thread makes, `ahead` of them in advance."""
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = deque(pool.submit(next, items) for _ in range(ahead))
            while True:
                yield waiting.popleft().result()
                waiting.append(pool.submit(next, items))
        finally:
            pool.shutdown(cancel_futures=True)
