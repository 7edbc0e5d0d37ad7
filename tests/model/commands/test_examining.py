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
from tests.conftest import TEXTS, MakePackage, with_manifest
from tests.model.commands.test_serving import trifold
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


def test_a_classifier_is_measured_without_what_translators_need(make_package: MakePackage, tmp_path: Path) -> None:
    package = with_manifest(make_package("sentiment"), tmp_path / "imported", labels=["hardware", "billing"])
    (tmp_path / "test.csv").write_text("text,label\nThe printer is broken,hardware\n")
    command = ("evaluate", str(package), "--data", str(tmp_path))

    done = trifold(*command, "--limit", "1", without="sacrebleu matplotlib")
    assert done.returncode == 0 and "accuracy" in done.stdout, done.stderr


def test_what_was_measured_on_other_data_is_not_told_again(make_package: MakePackage, tmp_path: Path) -> None:
    errors = [{"dataset": "other/test", "before": 0.2, "after": 0.1}]
    calibration = {"temperature": 2.0, "fitted_on": "other/validation", "rows": 100, "errors": errors}
    baselines = [{"dataset": "other/test", "name": "always its commonest label", "accuracy": 0.5}]
    package = with_manifest(
        make_package("sentiment"), tmp_path / "calibrated", calibration=calibration, baselines=baselines
    )
    (tmp_path / "test.csv").write_text("text,label\nA film,positive\n")

    result = CliRunner().invoke(app, ["evaluate", str(package), "--data", str(tmp_path)])
    assert result.exit_code == 0 and "always its commonest label" in result.output
    assert "calibration error" not in result.output and "other/test" not in result.output


def test_an_imported_package_was_verified_as_it_was_imported(make_package: MakePackage, tmp_path: Path) -> None:
    figures = {"max_relative_error": 7.9e-07, "distance": 0.0237, "batches": 8}
    package = with_manifest(make_package("sentiment", "int8"), tmp_path / "bert", family="bert", verification=figures)

    for more in ([], ["--run", str(tmp_path)]):
        told = str(CliRunner().invoke(app, ["verify", str(package), *more]).exception)
        assert "it was imported, and compared with its checkpoint then: int8, distance 0.024 from torch" in told
        assert told.endswith("to compare it anew, import it again")


def test_a_package_that_was_trained_is_verified_with_its_run(make_package: MakePackage) -> None:
    result = CliRunner().invoke(app, ["verify", str(make_package("sentiment").folder)], env={"COLUMNS": "200"})

    assert result.exit_code == 2 and "--run: give the folder of the run that it was exported from" in result.output


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
