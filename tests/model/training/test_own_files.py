"""Tables of a user's own texts and labels, as all kinds of programs write them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from model.training.errors import DataError
from model.training.own_labels import labels_of, own_classifier, read_own_texts
from tests.model.data_files import write_csv, write_xz


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.csv", "text;label\na;one\n", r"separated by semicolons; save it with commas, or with TABs as \.tsv$"),
        ("train.csv", '"text";"label"\n"a";"one"\n', "separated by semicolons; save it with commas"),
        ("train.csv", "text\tlabel\na\tone\n", r"separated by TABs; save it with commas, or call it \.tsv$"),
        ("train.tsv", "text,label\na,one\n", "separated by commas; save it with TABs$"),
        ("train.csv", "text,label\ra,one\r", "its lines end with CR alone"),
        ("train.tsv", "text\tlabel\ra\tone\r", "its lines end with CR alone"),
    ],
)
def test_tables_with_other_separators_or_line_ends_are_told(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_bytes(content.encode())

    with pytest.raises(DataError, match=rf"{name}: .*{message}"):
        own_classifier(tmp_path)


def test_packed_tables_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    packed = lzma.compress(b"text,label\n" + b"a,one\nb,two\n" * 5000)
    for content in (packed[:-40], b"text,label\na,one\n"):
        (tmp_path / "train.csv.xz").write_bytes(content)
        with pytest.raises(DataError, match=r"csv\.xz, behind line \d+: .*; the file is damaged, or is not com[^;]*$"):
            own_classifier(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (r'{"text": "a \ud800", "label": "x"}', r"line 1: it has half of a character, '\\ud800'"),
        (r'{"text": "a", "label": "\ud800"}', r"line 1: it has half of a character"),
        ('{"text": ' * 100_000, r"train\.jsonl, line 1: "),
    ],
)
def test_lines_of_json_that_are_no_texts_are_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "train.jsonl").write_text(f'{line}\n{{"text": "b", "label": "y"}}\n')

    with pytest.raises(DataError, match=message):
        own_classifier(tmp_path)


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, kind: str) -> None:
    lines = ["text,label,label", "a,one,two", "b,two,one"]
    (tmp_path / f"train.{kind}").write_text("\n".join(lines).replace(",", "," if kind == "csv" else "\t"))

    with pytest.raises(DataError, match=rf"train\.{kind}.*: there are two columns 'label'"):
        own_classifier(tmp_path)


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "tsv.xz", "jsonl.xz"])
def test_tables_of_every_kind_are_read_alike(tmp_path: Path, kind: str) -> None:
    rows = [('a, "b"', "one"), ("c", "two")]
    table = "text\tlabel\r\n" + "".join(f"{text}\t{label}\r\n" for text, label in rows)
    lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    content = table if "tsv" in kind else lines
    if kind.endswith(".xz"):
        write_xz(tmp_path / f"train.{kind}", content)
    else:
        (tmp_path / f"train.{kind}").write_bytes(content.encode())

    assert read_own_texts(tmp_path, "train") == [('a, "b"', 0), ("c", 1)]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("tsv", 'text\tlabel\n"say ""hi"""\tone\nd "e" f\ttwo\n'),
        ("csv", '"text", "label"\n"say ""hi""", "one"\nd "e" f, two\n'),
        ("tsv", 'text\tlabel\n"say ""hi"""\tone\n\nd "e" f\ttwo\n\n'),
        ("jsonl", '{"text": "say \\"hi\\"", "label": "one"}\n\n{"text": "d \\"e\\" f", "label": "two"}\n\n'),
    ],
    ids=["quoted fields between TABs", "spaces behind commas", "blank lines", "blank lines of JSON"],
)
def test_tables_are_read_as_spreadsheets_and_programs_write_them(tmp_path: Path, kind: str, content: str) -> None:
    (tmp_path / f"train.{kind}").write_text(content)

    assert read_own_texts(tmp_path, "train") == [('say "hi"', 0), ('d "e" f', 1)]


@pytest.mark.parametrize(("kind", "separator"), [("tsv", "\t"), ("csv", ", ")])
def test_texts_that_only_begin_or_end_with_a_quote_are_taken_as_they_are(
    tmp_path: Path, kind: str, separator: str
) -> None:
    texts = ['"Never mind, she said.', 'What a day it was"', '"Alien" is a good film', 'a "b" c']
    rows = [f"neg{separator}{text}" for text in texts] if kind == "tsv" else [f"neg{separator}{texts[2]}"]
    (tmp_path / f"train.{kind}").write_text("\n".join([f"label{separator}text", *rows, f"pos{separator}other", ""]))
    expected = texts if kind == "tsv" else texts[2:3]

    assert [text for text, _ in read_own_texts(tmp_path, "train")] == [*expected, "other"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_the_line_that_is_not_utf_8_is_named(tmp_path: Path, kind: str) -> None:
    separator = "\t" if kind == "tsv" else ","
    rows = [f"text{separator}label", *(f"a{number}{separator}one" for number in range(1499))]
    if kind == "jsonl":
        rows = [json.dumps({"text": f"a{number}", "label": "one"}) for number in range(1500)]
    (tmp_path / f"train.{kind}").write_bytes("\n".join([*rows, "café", ""]).encode("cp1252"))

    with pytest.raises(DataError, match=r"line 1501: the byte 0xe9 is not UTF-8; save the file as UTF-8"):
        labels_of(tmp_path)


def test_behind_a_space_a_quoted_field_holds_commas_and_lines_too(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('label, text\npos, "Good film.\nReally, really."\nneg, "bad, very"\n')

    assert read_own_texts(tmp_path, "train") == [("Good film.\nReally, really.", 1), ("bad, very", 0)]


def test_a_field_of_several_lines_between_tabs_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text('text\tlabel\n"line one\nline two"\tpos\n')

    with pytest.raises(DataError, match=r"line 2: 1 fields between TABs; .*; a field holds no TAB and no line end"):
        labels_of(tmp_path)


def test_commas_quotes_and_lines_within_a_text_are_the_texts(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('label,text\none,"a, ""b""\nc"\ntwo,d\n')

    assert read_own_texts(tmp_path, "train") == [('a, "b"\nc', 0), ("d", 1)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na,one\nb,one\n", r"its texts have 1 labels; there must be 2 to 1,000"),
        ("text,label\na,one\n ,two\n", r"train\.csv, line 3: its text is empty"),
        ("text,label\na,one\nb,\n", r"train\.csv, line 3: its label is ''; it must be a text or a whole number"),
        ("text,label\na,one\nb\n", r"train\.csv, line 3: it has fewer or more fields than columns: text, label"),
        ("text,label\na,one\nb,two,three\n", r"line 3: it has fewer or more fields than columns: text, label"),
        ("words,label\na,one\nb,two\n", r"train\.csv, line 2: there is no text; it has words, label"),
        ('text,label\na,one\n"b,two\n', r"train\.csv, behind line 2: unexpected end of data"),
        ("", r"its texts have 0 labels"),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_refused_by_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "train.csv").write_text(content)

    with pytest.raises(DataError, match=message):
        own_classifier(tmp_path)


@pytest.mark.parametrize("label", ["null", "true", "1.5", '""'])
def test_what_is_no_label_is_no_label_in_json_either(tmp_path: Path, label: str) -> None:
    (tmp_path / "train.jsonl").write_text(f'{{"text": "a", "label": 1}}\n{{"text": "b", "label": {label}}}\n')

    with pytest.raises(DataError, match=r"train\.jsonl, line 2: its label is .*; it must be a text or a whole number"):
        own_classifier(tmp_path)


def test_a_text_may_be_as_long_in_a_table_as_elsewhere(tmp_path: Path) -> None:
    rows = [(f"{label} {'a ' * 70_000}{place}", label) for label in ("praise", "blame") for place in range(20)]
    write_csv(tmp_path, "train", rows)

    assert max(len(text) for text, _ in read_own_texts(tmp_path, "train")) > 140_000
