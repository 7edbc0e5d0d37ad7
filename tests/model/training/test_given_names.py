from __future__ import annotations

from model.training.given_names import REPLACEMENTS, with_varied_names

ROWS = [("sv", f"Tom loves Mary. {index}", f"Tom älskar Mary. {index}") for index in range(200)]


def test_both_sides_get_the_same_name() -> None:
    for _, source, target in with_varied_names(ROWS, seed=1):
        assert source.replace(" loves ", " älskar ") == target


def test_about_half_of_the_names_are_replaced_by_names_of_the_same_gender() -> None:
    varied = [source.split()[0] for _, source, _ in with_varied_names(ROWS, seed=1)]

    assert 60 < sum(name != "Tom" for name in varied) < 140
    assert set(varied) <= {"Tom", *REPLACEMENTS["Tom"]}


def test_names_that_only_one_side_has_stay() -> None:
    rows = [("de", "Tom's dog", "Toms Hund")] * 50

    assert with_varied_names(rows, seed=1) == rows
