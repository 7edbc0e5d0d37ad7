from __future__ import annotations

import json

import pytest

from service.errors import NotJson, TooLarge
from service.json_values import MAX_DEPTH, MAX_VALUES, check_values


@pytest.mark.parametrize(
    "value",
    [
        "Well, well, " * MAX_VALUES,
        '"quoted", ' * (MAX_VALUES // 2),
        "\\, " * MAX_VALUES,
        ["a, b"] * (MAX_VALUES // 2),
        list(range(MAX_VALUES - 1)),
    ],
    ids=["commas in a text", "quotes in a text", "backslashes in a text", "texts with commas", "numbers"],
)
def test_bodies_of_few_values_pass_however_many_commas_their_texts_have(value: object) -> None:
    check_values(json.dumps({"input": value}).encode())


@pytest.mark.parametrize(
    "value",
    [
        list(range(MAX_VALUES + 1)),
        [""] * (4 * MAX_VALUES),
        [["a", "b"]] * MAX_VALUES,
        {str(key): 1 for key in range(MAX_VALUES + 1)},
    ],
    ids=["numbers", "empty texts", "pairs", "keys"],
)
def test_a_body_of_too_many_values_is_refused_unparsed(value: object) -> None:
    with pytest.raises(TooLarge, match=f"more than {MAX_VALUES} values"):
        check_values(json.dumps({"input": value}).encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
@pytest.mark.parametrize("text", ['{"x": "\\"", "input": "a"}', '["a\U0001f600", "\u0122", 1]', '["\ud800"]'])
def test_no_other_encoding_than_utf_8_is_counted_otherwise_than_it_is_read(encoding: str, text: str) -> None:
    with pytest.raises(NotJson, match="send JSON in UTF-8"):
        check_values(text.encode(encoding, "surrogatepass"))


def test_an_image_that_begins_with_zeros_is_in_no_encoding() -> None:
    check_values(b"\0\0\0\x20ftypheic\xff\xd8")


BRACKETS = b"[" * 100_000
JSON_OF_BRACKETS = b"[" + b",".join([b"[" * 150 + b"]" * 150] * 500) + b"]"


@pytest.mark.parametrize("beginning", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF", b"BM"])
def test_what_pictures_hold_are_no_lists(beginning: bytes) -> None:
    check_values(beginning + BRACKETS)


@pytest.mark.parametrize("body", [BRACKETS, JSON_OF_BRACKETS, b" " * 2000 + BRACKETS, b"[" * 201 + b'"' * 2_000_000])
def test_lists_are_values_though_there_are_no_commas(body: bytes) -> None:
    with pytest.raises(TooLarge, match="the body has more than 65536 values"):
        check_values(body)


@pytest.mark.parametrize("body", [b"", b"a=b", "é".encode(), b"\xef\xbb\xbf{}", b"\x89PNG\r\n", b"\xff\xd8\xff\xe0"])
def test_what_is_no_json_is_left_to_who_reads_it(body: bytes) -> None:
    check_values(body)


def test_lists_and_objects_in_one_another_are_counted_outside_of_texts() -> None:
    half = MAX_DEPTH // 2
    deep = "[" * half + '{"a": ' * half + '"[[[{{{"' + "}" * half + "]" * half
    check_values(deep.encode())
    check_values(json.dumps({"input": "[" * 10_000, "others": [[]] * 1000}).encode())

    with pytest.raises(TooLarge, match="more than 200 lists and objects in one another"):
        check_values(f"[{deep}]".encode())
