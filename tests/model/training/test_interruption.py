"""Ctrl-C while a run trains."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from model.training.loop import Training
from model.training.run import Run
from tests.model.training.tiny_runs import run


@pytest.fixture(autouse=True)
def _heeds_ctrl_c() -> Iterator[None]:
    """Let SIGINT raise `KeyboardInterrupt`, which whoever starts tests in the background may have had ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["pretrain-encoder", "finetune-classify-spam"])
def test_a_run_that_ctrl_c_ends_saves_its_step_and_ends_like_an_uninterrupted_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"checkpoint_seconds": 1e9, "evaluate_every": 5, "epochs": 16, "accumulate": 2}
    whole = run(name, tmp_path / "whole", **options)
    take_step = Training.take_step

    def interrupted(self: Training, batches: Any) -> torch.Tensor:
        if self.step == 4:
            signal.raise_signal(signal.SIGINT)
        return take_step(self, batches)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Training, "take_step", interrupted)
        run(name, tmp_path / "resumed", **options)
    steps = Run(tmp_path / "whole").decisions().steps
    assert f"resumed: stopped at step 5 of {steps}; the same command goes on\n" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = run(name, tmp_path / "resumed", **options)

    assert f"resumed: goes on at step 5 of {steps}\n" in capsys.readouterr().err
    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())
    figures = [json.loads((tmp_path / folder / "figures.json").read_text()) for folder in ("whole", "resumed")]
    assert [{**each, "seconds": 0} for each in figures] == [{**figures[0], "seconds": 0}] * 2


@pytest.mark.parametrize(
    ("times", "error"),
    [
        pytest.param(1, RuntimeError("C++ compile error"), id="what fails by it, as a compiler that it ends, too"),
        pytest.param(2, AssertionError("went on"), id="a second one, at once"),
    ],
)
def test_ctrl_c_ends_a_run_within_a_step_by(
    times: int, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: Training, batches: Any) -> torch.Tensor:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        raise error

    monkeypatch.setattr(Training, "take_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("finetune-classify-spam", tmp_path)
    assert "stopped at step 0 of" in capsys.readouterr().err
