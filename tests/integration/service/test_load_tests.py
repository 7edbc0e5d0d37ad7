"""The load tests, for a moment each, on the real service: what they print is not looked at, but that they measure."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.sweep import LOCUSTFILE
from tests.integration.processes import ROOT

pytestmark = pytest.mark.integration


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_the_bench_over_http_measures_all_ways_to_a_model(service: str) -> None:
    shortest = ["--only", "classify", "--connections", "2", "--seconds", "1", "--rounds", "1"]
    command = [sys.executable, "-m", "loadtests.bench_http", "--host", service, *shortest]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    connections, *cells = ended.stdout.splitlines()[-1].strip("| ").split(" | ")
    rates = [int(re.match(r"\d+", cell).group()) for cell in cells[:-1]]  # type: ignore[union-attr]  # it is a number
    assert connections == "2" and len(rates) == 5 and min(rates) > 0
    assert "failed" not in ended.stdout


def test_users_of_all_tasks_are_answered_and_measured(service: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--users", "10", "--spawn-rate", "100", "--pause", "0.3", "--run-time", "10", "--slo-first-token", "30"]
    options += ["--max-error-ratio", "1"]  # most texts are too long for models that are tiny
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--host", service, *options]
    ended = subprocess.run(
        [*command, "--report", str(report)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    tasks = json.loads(report.read_text())["tasks"]
    assert tasks.keys() == {"classify", "embed", "generate", "translate"}
    assert {status for figures in tasks.values() for status in figures["errors"]} <= {"422"}
    assert all(figures["answered"] and figures["tokens_per_s"] > 0 for figures in tasks.values())
    assert all(tasks["generate"][name] for name in ("first_token_s", "between_tokens_s", "per_token_s"))
    assert tasks["generate"]["good"] == tasks["generate"]["answered"]
