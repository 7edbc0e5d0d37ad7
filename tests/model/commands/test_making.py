"""What the commands that make models plan."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from model.commands.app import app
from model.package import Manifest
from model.sizes import SIZES
from model.training.errors import RunError
from model.training.loop import Training
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


def test_training_tells_what_it_came_to_and_again_that_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "mini-encoder", TINY["sentiment"])
    monkeypatch.setitem(RECIPES, NAME, replace(RECIPES[NAME], read=lambda *_: rows_of(NAME), evaluate_every=2))
    command = ["train", NAME, "--data", str(tmp_path), "--out", str(tmp_path / "run"), "--no-compile"]

    for begins in ("finished", "already finished:"):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output + repr(result.exception)
        figures = json.loads((tmp_path / "run" / "figures.json").read_text())
        best = f"best at step {figures['step']}: accuracy {figures['accuracy']:.4g}"
        told = result.stdout.splitlines()[-1]
        assert re.fullmatch(rf".*run: {begins} {figures['of']} steps in 0\.\d min; {best}", told)


def test_a_run_is_exported_from_its_first_validation_on_and_told_until_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_step = Training.take_step
    stop: int | None = 1
    options: dict[str, Any] = {"evaluate_every": 2, "checkpoint_seconds": 0}

    def interrupted(self: Training, batches: Any) -> torch.Tensor:
        if self.step == stop:
            raise KeyboardInterrupt
        return take_step(self, batches)

    def export() -> Result:
        return CliRunner().invoke(app, ["export", "--run", str(tmp_path / "run"), "--out", str(tmp_path / "package")])

    monkeypatch.setattr(Training, "take_step", interrupted)
    for stop in (1, 3, None):
        with nullcontext() if stop is None else pytest.raises(KeyboardInterrupt):
            run(NAME, tmp_path / "run", **options)
        result = export()
        if stop == 1:
            assert isinstance(result.exception, RunError)
            assert "there is no best.pt, as training has not come to its first validation" in str(result.exception)
        else:
            assert result.exit_code == 0, result.output + repr(result.exception)
            assert ("run: its training is not finished, at step 3 of" in result.stdout) == (stop == 3)


def test_an_import_tells_how_far_from_the_checkpoint_is_what_it_made(checkpoints: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", str(checkpoints / "gpt2"), "--out", str(tmp_path / "gpt2")])

    found = Manifest.load(tmp_path / "gpt2").verification
    assert found.distance is not None and found.distance > 100 * found.max_relative_error  # as 8 bits are no 32
    assert result.stdout.splitlines()[-1] == (
        f"{tmp_path / 'gpt2'}: int8, distance {found.distance:.2g} from torch (limit 0.2); largest relative error in "
        f"float32 {found.max_relative_error:.1e} (limit 0.0001)"
    )
