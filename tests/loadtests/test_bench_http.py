from __future__ import annotations

from loadtests.bench_http import Measured, cell


def test_a_ratio_is_taken_within_each_round() -> None:
    plain, ours = [Measured(100, 2, 5, 0), Measured(400, 1, 1, 0)], [Measured(90, 3, 6, 0), Measured(200, 1, 2, 3)]
    turns = list(zip(plain, ours, strict=True))

    assert cell(0, turns) == "250 (2, 3)"
    assert cell(1, turns) == "145 (2, 4; 0.70; 3 failed)"
