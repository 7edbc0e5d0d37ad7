"""A run's folder: whose files it may have when a run begins there, and what is out of reach."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from model.training.errors import RunError
from model.training.loop import Training
from model.training.run import Run, load_trained
from tests.conftest import MakePackage
from tests.model.training.tiny_runs import run


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("others", "first"),
    [
        ({"config.json": '{"model_type": "bert"}', "tokenizer.json": "{}", "log.jsonl": "{}"}, "config.json"),
        ({"config.json": "{", "tokenizer.json": "{}"}, "config.json"),
        ({"tokenizer.json": "{}", "tokenizer_config.json": "{}"}, "tokenizer_config.json"),
        ({"model.safetensors": "", "tokenizer.json": "{}"}, "model.safetensors"),
        ({"figures.json": "{}", "tokenizer.json": "{}"}, "figures.json"),
        ({"tokenizer.json": "{}", "vocab.json": "{}"}, "vocab.json"),
        ({"config.json": "", "model.safetensors": ""}, "model.safetensors"),
    ],
)
def test_a_folder_with_others_files_is_left_as_it_is(others: dict[str, str], first: str, tmp_path: Path) -> None:
    for name, content in others.items():
        (tmp_path / name).write_text(content)
    before = content_of(tmp_path)

    with pytest.raises(RunError, match=f"there is {first}, and no description of a training run, .* empty folder"):
        run("finetune-classify-spam", tmp_path)
    assert content_of(tmp_path) == before


def test_so_is_that_of_a_package(make_package: MakePackage, tmp_path: Path) -> None:
    package = Path(shutil.copytree(make_package("sentiment").folder, tmp_path / "sentiment"))
    before = content_of(package)

    with pytest.raises(RunError, match="no description of a training run"):
        run("finetune-classify-spam", package)
    assert content_of(package) == before


def test_what_is_taken_for_a_run_and_is_a_package_or_nowhere_is_told(make_package: MakePackage, tmp_path: Path) -> None:
    package = make_package("sentiment").folder

    for read in (load_trained, lambda folder: Run(folder).about()):
        with pytest.raises(RunError, match=f"{package}: it is a package; `trifold unpack {package} --out"):
            read(package)
        with pytest.raises(RunError, match="nowhere: there is no such folder"):
            read(tmp_path / "nowhere")
        with pytest.raises(RunError, match=r"there is no .*; it is not the folder of a training run"):
            read(tmp_path)


def test_a_run_interrupted_before_its_first_checkpoint_begins_anew_beside_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Training) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Training, "save", interrupted)
        run("finetune-classify-spam", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "tokenizer.json"}
    for name in ("train.log", "nohup.out", "slurm-1.err", "README.md", "data.bin", ".gitkeep"):  # of anybody
        (tmp_path / name).write_text("")
    (tmp_path / "lost+found").mkdir()

    run("finetune-classify-spam", tmp_path)
    assert json.loads((tmp_path / "figures.json").read_text())["step"] > 0


def test_a_run_killed_while_it_read_data_begins_anew_beside_files_of_anybody(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "taught.npz", "train.txt", "train.pid", "README.md"):
        (tmp_path / name).write_text("{}")

    run("finetune-classify-spam", tmp_path)
    assert (tmp_path / "best.pt").exists()


def test_a_run_killed_while_it_described_itself_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "tokenizer.json").write_text("{}")

    run("finetune-classify-spam", tmp_path)
    assert (tmp_path / "best.pt").exists()


def test_weights_out_of_reach_are_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "best.pt").mkdir()  # as a file that may not be read, which there is none of for root

    with pytest.raises(OSError, match=r"best\.pt") as error:
        load_trained(tmp_path)
    assert "remove the folder" not in str(error.value)
