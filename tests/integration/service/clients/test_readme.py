"""The programs of the README, run as they stand there against the running service."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ADDRESS = "http://127.0.0.1:8000"
README = Path(__file__).parents[4] / "README.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S)

pytestmark = pytest.mark.integration


def test_there_are_programs_for_six_clients_of_five_lines() -> None:
    assert len(PROGRAMS) == 6
    for program in PROGRAMS:
        assert ADDRESS in program
        assert len([line for line in program.splitlines() if line]) <= 5


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.split()[1] for program in PROGRAMS])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the clients' own
def test_a_program_prints_an_answer(program: str, service: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program.replace(ADDRESS, service), "README.md", "exec"), {})

    assert capsys.readouterr().out.strip()
