"""What the commands that make models plan."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model.commands.app import app
from model.package import Manifest
from model.sizes import SIZES
from model.training.recipes import RECIPES
from model.training.run import load_trained
from tests.conftest import TINY
from tests.model.training.tiny_runs import rows_of, run

NAME = "finetune-classify-spam"


def test_a_dry_run_of_an_interrupted_run_plans_the_model_that_it_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "mini-encoder", TINY["sentiment"])
    monkeypatch.setitem(RECIPES, NAME, replace(RECIPES[NAME], read=lambda *_: rows_of(NAME)))
    run("pretrain-encoder", tmp_path / "start", epochs=1)  # whose tokenizer was made of more and other texts
    run(NAME, tmp_path / "run", tmp_path / "start", epochs=1)
    parameters = sum(parameter.numel() for parameter in load_trained(tmp_path / "run")[0].parameters())

    command = ["train", NAME, "--data", str(tmp_path), "--out", str(tmp_path / "run"), "--dry-run", "--no-compile"]
    for more in ([], ["--start-from", str(tmp_path / "start")]):
        result = CliRunner().invoke(app, [*command, *more])
        assert result.exit_code == 0, result.output + repr(result.exception)
        found = re.search(r"parameters +│ +([\d,]+)", result.output)
        assert found is not None and int(found[1].replace(",", "")) == parameters


def test_an_import_tells_how_far_from_the_checkpoint_is_what_it_made(checkpoints: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", str(checkpoints / "gpt2"), "--out", str(tmp_path / "gpt2")])

    found = Manifest.load(tmp_path / "gpt2").verification
    assert found.distance is not None and found.distance > 100 * found.max_relative_error  # as 8 bits are no 32
    assert result.stdout.splitlines()[-1] == (
        f"{tmp_path / 'gpt2'}: int8, distance {found.distance:.2g} from torch (limit 0.2); largest relative error in "
        f"float32 {found.max_relative_error:.1e} (limit 0.0001)"
    )
