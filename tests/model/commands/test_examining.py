"""What the commands that examine models print, and where."""

from __future__ import annotations

import errno
import io
import shutil
import sys
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from model.commands.app import app
from model.commands.tables import show
from model.package import Manifest
from model.sizes import SIZES
from model.summary import summarise
from tests.conftest import TEXTS, MakePackage
from tests.model.data_files import write_xz


def test_figures_that_cannot_be_written_are_told(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(shutil.copytree(make_package("embed").folder, tmp_path / "embed"))
    rows = "".join(f"{TEXTS[0]}\t{text}\t{place}\n" for place, text in enumerate(TEXTS))
    write_xz(tmp_path / "data" / "stsb" / "test.tsv.xz", f"sentence1\tsentence2\tscore\n{rows}")

    def full(_manifest: Manifest, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    monkeypatch.setattr(Manifest, "save", full)
    result = CliRunner().invoke(app, ["evaluate", str(package), "--data", str(tmp_path / "data")])

    assert isinstance(result.exception, OSError)
    assert "stsb/test" in result.output and "Spearman" in result.output


def test_a_summary_in_a_pipe_has_whole_names_line_by_line() -> None:
    result = CliRunner().invoke(app, ["summary", "translate"], env={"COLUMNS": "60"})

    layers, _ = summarise(SIZES["translate"])
    printed = [line.split()[1] for line in result.output.splitlines() if line.startswith("│")]
    assert printed == [layer.path for layer in layers]


def test_a_table_on_a_narrow_terminal_folds_what_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    for variable, value in (("COLUMNS", "30"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(variable, value)
    name = "decoder.blocks.0.cross_attention_residual.norm"
    table = Table("layer", "parameters")
    table.add_row(name, "256")
    show(table)

    rows = [line for line in terminal.getvalue().splitlines() if line.startswith("│")]
    assert "".join(row.split("│")[1].strip() for row in rows) == name
    assert all(len(row) <= 30 for row in rows)


class Terminal(io.StringIO):
    """A stdout that somebody looks at, without colours."""

    def isatty(self) -> bool:
        return True
