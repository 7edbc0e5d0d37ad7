from __future__ import annotations

import gzip
import lzma
import random
from pathlib import Path

import numpy as np
import pytest

from model.training.data import equal_batches, length_batches, noting_files, read_idx_pair, read_rows
from model.training.errors import DataError


def test_tsv_fields_are_split_at_tabs_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv.xz"
    path.write_bytes(lzma.compress(b'en\tde\n"Hi," she said.\t"Hallo\n'))

    assert list(read_rows(path)) == [{"en": '"Hi," she said.', "de": '"Hallo'}]


def test_jsonl_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress('{"text": "ä"}\n{"text": "b"}\n'.encode()))

    assert [row["text"] for row in read_rows(path)] == ["ä", "b"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rows.tsv.xz", b"en\tde\none\teins\ntwo\n", "line 3: 1 fields between TABs; the columns are en, de"),
        ("rows.jsonl.xz", b'{"en": "one"}\n{"en"\n', "line 2: Expecting ':' delimiter"),
        ("rows.jsonl.xz", b"7\n", "line 1: 'int' object is not iterable"),
    ],
)
def test_a_line_that_is_no_row_is_named(name: str, content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(lzma.compress(content))

    with pytest.raises(DataError, match=f"{tmp_path / name}, {problem}"):
        list(read_rows(tmp_path / name))


def test_a_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv.xz"
    path.write_bytes(lzma.compress(b"en\tde\none\teins\n")[:-12])

    with pytest.raises(DataError, match=f"{path}, line .*ended before"):
        list(read_rows(path))


def test_a_column_that_is_not_there_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv.xz"
    path.write_bytes(lzma.compress(b"en\tde\none\teins\n"))

    with pytest.raises(DataError, match="line 2: there is no fr; it has en, de"):
        next(read_rows(path))["fr"]


def test_a_label_that_is_not_known_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv.xz"
    path.write_bytes(lzma.compress(b"text\tlabel\nHi.\tspma\n"))

    with pytest.raises(DataError, match="line 2: label is 'spma'; there are ham, spam"):
        next(read_rows(path)).label(("ham", "spam"))


def test_images_that_were_cut_short_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9, 1, 2])))

    with pytest.raises(DataError, match=f"{path}: .*; it is not whole"):
        read_idx_pair(tmp_path, "train")


def test_batches_hold_everything_once_within_the_budget() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(1, 40) for _ in range(500)]

    batches = length_batches(lengths, 128, rng)

    assert sorted(index for batch in batches for index in batch) == list(range(500))
    assert all(max(lengths[index] for index in batch) * len(batch) <= 128 for batch in batches)


def test_an_example_longer_than_the_budget_has_a_batch_of_its_own() -> None:
    assert length_batches([3, 200], 100, None) == [[0], [1]]


def test_a_batch_holds_no_more_than_it_may() -> None:
    assert length_batches([1, 1, 1, 1, 1], 100, None, most=2) == [[0, 1], [2, 3], [4]]


def test_batches_of_one_size_leave_out_a_rest_in_training_alone() -> None:
    assert equal_batches(range(5), 2, None) == [[0, 1], [2, 3], [4]]
    assert [len(batch) for batch in equal_batches(range(5), 2, random.Random(0))] == [2, 2]
    assert sorted(equal_batches(range(3), 4, random.Random(0))[0]) == [0, 1, 2]  # for there is nothing else
    assert equal_batches(range(2), 0, None) == [[0], [1]]  # of what is larger than a batch


def test_what_is_kept_apart_fills_other_batches() -> None:
    copies = [frozenset((index % 30,)) for index in range(120)]  # four of each

    batches = length_batches([5] * 120, 50, random.Random(0), apart=copies)

    assert sorted(index for batch in batches for index in batch) == list(range(120))
    assert all(len(batch) == len({index % 30 for index in batch}) <= 10 for batch in batches)
    assert len(batches) <= 12 + 3  # the last copies may find no batch with others


def test_files_are_noted_while_they_are_read_and_no_others(tmp_path: Path) -> None:
    for name in ("before", "meanwhile", "twice"):
        (tmp_path / f"{name}.tsv.xz").write_bytes(lzma.compress(b"en\n"))
    list(read_rows(tmp_path / "before.tsv.xz"))

    with noting_files() as files:
        for name in ("meanwhile", "twice", "twice"):
            list(read_rows(tmp_path / f"{name}.tsv.xz"))

    assert files == {tmp_path / "meanwhile.tsv.xz", tmp_path / "twice.tsv.xz"}


def test_batches_of_similar_lengths_waste_little() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(1, 100) for _ in range(2000)]

    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in length_batches(lengths, 2000, rng))
    assert padded < 1.05 * sum(lengths)


def test_both_sides_of_a_batch_of_pairs_are_of_similar_lengths() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 20, (5000, 2))

    batches = length_batches(lengths, 500, random.Random(0))

    assert sorted(index for batch in batches for index in batch) == list(range(5000))
    assert all(lengths[batch].max() * len(batch) <= 500 for batch in batches)
    padded = sum(int(lengths[batch].max(axis=0).sum()) * len(batch) for batch in batches)
    assert padded < 1.1 * lengths.sum()  # in the order of the longer side alone 1.2 times as many


def test_epochs_differ_and_repeat_by_their_seed() -> None:
    lengths = [5] * 100

    one, again, other = (length_batches(lengths, 20, random.Random(seed)) for seed in (1, 1, 2))
    assert one == again != other
