from __future__ import annotations

import json

import pytest

from service.api.bodies import MAX_VALUES, check_values
from service.errors import TooLarge


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
