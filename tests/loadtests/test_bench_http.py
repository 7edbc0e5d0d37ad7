from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest

from loadtests.bench_http import APPS, TEXT, Measured, Target, cell, measure, serving, wait_for


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
@pytest.mark.parametrize("app", APPS)
def test_what_it_compares_with_starts_and_answers(app: str, tmp_path: Path) -> None:
    with serving(app, tmp_path) as address:
        target = Target(app, f"{address}/classify", {"model": "sentiment", **TEXT})
        wait_for(target)
        (labels,) = httpx.post(target.address, json=target.body).json()["results"]
        measured = measure(target, tmp_path, connections=2, seconds=1)

    assert labels["labels"][0]["label"] == "positive"
    assert measured.rate > 0 and measured.p99 > 0 and measured.failed == 0


def test_a_ratio_is_taken_within_each_round() -> None:
    plain, ours = [Measured(100, 2, 5, 0), Measured(400, 1, 1, 0)], [Measured(90, 3, 6, 0), Measured(200, 1, 2, 3)]
    turns = list(zip(plain, ours, strict=True))

    assert cell(0, turns) == "250 (2, 3)"
    assert cell(1, turns) == "145 (2, 4; 0.70; 3 failed)"
