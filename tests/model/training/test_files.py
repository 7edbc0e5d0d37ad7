from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from model.training.errors import DataError
from model.training.files import noting_files, read_idx_pair, read_rows
from model.training.readers import _wikitext_articles, read_emerging_entities


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


def test_so_is_one_of_words_and_tags_or_of_articles(tmp_path: Path) -> None:
    for file in ("wnut17/test.conll.xz", "wikitext2/train.txt.xz"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_bytes(lzma.compress(b"a\tO\n" * 100)[:-20])

    with pytest.raises(DataError, match=r"test\.conll\.xz, line .*ended before"):
        read_emerging_entities(tmp_path)
    with pytest.raises(DataError, match=r"train\.txt\.xz, line .*ended before"):
        list(_wikitext_articles(tmp_path, "train"))


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


def test_files_are_noted_while_they_are_read_and_no_others(tmp_path: Path) -> None:
    for name in ("before", "meanwhile", "twice"):
        (tmp_path / f"{name}.tsv.xz").write_bytes(lzma.compress(b"en\n"))
    list(read_rows(tmp_path / "before.tsv.xz"))

    with noting_files() as files:
        for name in ("meanwhile", "twice", "twice"):
            list(read_rows(tmp_path / f"{name}.tsv.xz"))

    assert files == {tmp_path / "meanwhile.tsv.xz", tmp_path / "twice.tsv.xz"}
