from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from model.progress import note, with_bar
from tests.model.training.tiny_runs import run


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_and_a_log_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    assert list(with_bar([1, 2, 3], desc="texts")) == [1, 2, 3]
    assert capsys.readouterr().err == ""

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with with_bar([1, 2, 3], desc="texts") as bar:
        note(bar, "spam", 2, {"loss": "0.5"})
    seen = terminal.getvalue()
    assert "texts" in seen and "loss=0.5" in seen and "step 2" not in seen


def test_beside_others_a_process_shows_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")

    for stderr in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stderr)
        with with_bar([1, 2, 3]) as bar:
            note(bar, "spam", 2, {"loss": "0.5"})
        assert stderr.getvalue() == ""


def test_a_training_without_a_terminal_is_followed_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    run("finetune-classify-spam", tmp_path)

    told = capsys.readouterr().err
    assert re.fullmatch(r"finetune-classify-spam: step 6 of 6, loss \d\.\d{3}, epoch \d\n", told)
