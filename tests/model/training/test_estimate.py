"""How long runs will still take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from model.training.estimate import Estimate, estimate_of
from model.training.recipes import PACKAGES, RECIPES, chain_of


def test_what_is_left_is_what_was_counted_at_the_rate_of_what_was_done() -> None:
    estimate = Estimate({"first": 100.0, "second": 300.0})
    assert estimate.left() is None and "unknown" in estimate.told()

    estimate.note("first", 0.5, 60.0)  # 50 in a minute
    assert estimate.left() == pytest.approx((50 + 300) / 50 * 60)
    estimate.note("first", 1.0, 120.0)
    estimate.note("second", 1 / 3, 240.0)  # 200 in six minutes, slower than before
    assert estimate.left() == pytest.approx(200 / 200 * 360)
    assert estimate.told() == "6 min"
    assert Estimate({"only": 100.0}, {"only": 60.0}, {"only": 0.01}).told() == "1 h 39 min"


def test_runs_beside_one_another_are_through_sooner() -> None:
    estimate = Estimate({"one": 1e12, "two": 1e12})
    assert estimate.told() == "unknown before the first steps"
    estimate.note("one", 0.5, 3600.0)

    assert (estimate.told(), estimate.told(beside=2), estimate.told(beside=4)) == ("3 h 00 min", "1 h 30 min", "45 min")


@pytest.mark.usefixtures("tiny")
def test_runs_are_counted_once_and_anew_when_their_recipe_is_another(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, chain = tmp_path / "runs", chain_of(RECIPES[PACKAGES["entities"]])
    first = estimate_of(chain, data, runs)
    twice = replace(chain[-1], epochs=4)

    again = estimate_of([*chain[:-1], twice], data, runs)

    unchanged = [step.name for step in chain[:-1]]
    assert [again.flops[name] for name in unchanged] == [first.flops[name] for name in unchanged]
    assert again.flops[twice.name] == pytest.approx(2 * first.flops[twice.name], rel=0.1)
    monkeypatch.setattr("model.training.estimate.Training", None)  # nothing is counted a second time
    assert estimate_of([*chain[:-1], twice], data, runs) == again

    (read,) = (data / "wikigold").iterdir()
    read.write_bytes(read.read_bytes() * 2)  # of other data the count is another
    with pytest.raises(TypeError):
        estimate_of([*chain[:-1], twice], data, runs)
