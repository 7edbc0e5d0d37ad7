"""Packages as runs again."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from typer.testing import CliRunner

from model.commands.app import app
from model.config import AttentionConfig
from model.export.export import export_package
from model.export.runs import export_run
from model.export.unpack import UNPACKED, read_model, unpack
from model.package import Manifest, PackageError, Training
from model.package.files import sha256_of
from model.package.manifest import Precision
from model.training.errors import RunError
from model.training.recipes import PACKAGES, RECIPES
from model.training.run import Run, load_trained
from tests.conftest import TINY, MakePackage, TinyPackage, random_model, with_manifest
from tests.model.training.tiny_runs import run as training_run

FASHION = RECIPES[PACKAGES["fashion"]].card
NAMES = ["sentiment", "embed", "fashion", "stories", "translate"]


def trained(package: TinyPackage, folder: Path) -> Path:
    """Copy a package, as if a recipe had made it."""
    recipe = PACKAGES[package.folder.name]
    return with_manifest(package, folder, training={"recipe": recipe, "minutes": 2.5})


def integers(folder: Path, graph: str) -> dict[str, np.ndarray]:
    weights = onnx.load(folder / graph).graph.initializer
    return {each.name: numpy_helper.to_array(each) for each in weights if each.data_type == onnx.TensorProto.INT8}


@pytest.mark.parametrize("name", NAMES)
def test_exact_weights_are_read_back_as_they_were(make_package: MakePackage, name: str) -> None:
    package = make_package(name)

    read, written = read_model(package.folder).state_dict(), package.model.state_dict()

    assert read.keys() == written.keys()
    assert all(torch.equal(read[key], written[key]) for key in read)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("precision", "rounding"), [("float16", 2**-11), ("int8", 0.5 / 127)])
def test_rounded_weights_are_read_back_as_near_as_they_were_written(
    make_package: MakePackage, name: str, precision: Precision, rounding: float
) -> None:
    package = make_package(name, precision)

    read = read_model(package.folder).state_dict()

    for key, written in package.model.state_dict().items():
        assert (read[key] - written).abs().max() <= 1.01 * rounding * written.abs().max(), key


@pytest.mark.parametrize(("name", "graph"), [("sentiment", "encoder.onnx"), ("stories", "decoder.onnx")])
def test_what_is_unpacked_and_exported_again_has_the_same_integers(
    make_package: MakePackage, tmp_path: Path, name: str, graph: str
) -> None:
    package = trained(make_package(name, "int8"), tmp_path / name)

    unpack(package, tmp_path / "run")
    manifest = export_run(tmp_path / "run", tmp_path / "again", precision="int8")

    before, after = integers(package, graph), integers(tmp_path / "again", graph)
    assert before.keys() == after.keys() and before
    assert all(np.array_equal(before[key], after[key]) for key in before)
    assert manifest.training == Training(recipe=PACKAGES[name], minutes=2.5)
    assert manifest.training_data == Manifest.load(package).training_data


def test_a_run_of_another_recipe_begins_with_what_was_unpacked(make_package: MakePackage, tmp_path: Path) -> None:
    unpack(trained(make_package("sentiment", "int8"), tmp_path / "sentiment"), tmp_path / "run")
    before, tokenizer, _ = load_trained(tmp_path / "run")
    assert tokenizer is not None

    training_run("finetune-classify-spam", tmp_path / "on", start_from=tmp_path / "run", epochs=1, learning_rate=1e-9)

    after = load_trained(tmp_path / "on")[0].state_dict()
    words = before.state_dict()["embeddings.words.weight"]
    assert torch.allclose(after["embeddings.words.weight"], words, atol=1e-6)
    assert Run(tmp_path / "on").about().minutes_before == 2.5
    assert Run(tmp_path / "on").tokenizer.read_bytes() == Run(tmp_path / "run").tokenizer.read_bytes()


def test_an_unpacked_run_is_not_resumed(make_package: MakePackage, tmp_path: Path) -> None:
    unpack(trained(make_package("sentiment"), tmp_path / "sentiment"), tmp_path / "run")

    with pytest.raises(RunError, match=r"no checkpoint\.pt to go on from"):
        training_run("finetune-classify-sentiment", tmp_path / "run")


def test_the_command_makes_a_run_that_can_be_exported(make_package: MakePackage, tmp_path: Path) -> None:
    package = trained(make_package("fashion", "int8"), tmp_path / "fashion")

    for arguments in (
        ["unpack", package, "--out", tmp_path / "run"],
        ["export", "--run", tmp_path / "run", "--out", tmp_path / "exact", "--precision", "float32"],
        ["verify", tmp_path / "exact", "--run", tmp_path / "run"],
    ):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output + repr(result.exception)

    assert Manifest.load(tmp_path / "exact").precision == "float32"


def test_what_no_recipe_made_is_refused(make_package: MakePackage, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="no recipe made it"):
        unpack(make_package("sentiment").folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_something_in_it_is_left_alone(make_package: MakePackage, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.pt").write_text("mine")

    with pytest.raises(RunError, match="something is there already"):
        unpack(trained(make_package("sentiment"), tmp_path / "sentiment"), tmp_path / "run")
    assert (tmp_path / "run" / "best.pt").read_text() == "mine"


@pytest.mark.parametrize("is_new", [True, False])
def test_what_is_interrupted_leaves_nothing_and_can_be_asked_for_again(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    package, folder = trained(make_package("sentiment"), tmp_path / "sentiment"), tmp_path / "run"
    if not is_new:
        folder.mkdir()

    def full(_state: object, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr("model.export.unpack.save_whole", full)
        unpack(package, folder)
    assert not folder.exists() if is_new else not list(folder.iterdir())

    (folder / ".export-killed").mkdir(parents=True)  # of one that could not remove it
    assert load_trained(unpack(package, folder).folder)[1] is not None
    assert not (folder / ".export-killed").exists()


@pytest.mark.parametrize("precision", ["int8-blocks", "int8-static"])
def test_weights_that_were_changed_beyond_rounding_are_refused(make_package: MakePackage, precision: Precision) -> None:
    with pytest.raises(PackageError, match=f"weights of {precision} cannot be read back; of {', '.join(UNPACKED)}"):
        read_model(make_package("sentiment", precision).folder)


def test_heads_that_were_made_wider_are_refused(tmp_path: Path) -> None:
    model = random_model(replace(TINY["fashion"], attention=AttentionConfig(2, head_dim=12)))
    export_package(model, None, FASHION, tmp_path / "wide", precision="float32")

    with pytest.raises(PackageError, match="its attention was made wider"):
        read_model(tmp_path / "wide")


def test_a_weight_under_another_name_is_named(make_package: MakePackage, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(make_package("sentiment").folder, tmp_path / "sentiment"))
    graph = onnx.load(folder / "encoder.onnx")
    for weight in graph.graph.initializer:
        weight.name = weight.name.replace("norm.bias", "norm.shift")
    onnx.save(graph, folder / "encoder.onnx")
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["sha256"]["encoder.onnx"] = sha256_of(folder / "encoder.onnx")
    path.write_text(json.dumps(manifest))

    with pytest.raises(PackageError, match=r"norm\.bias is not in its graphs"):
        read_model(folder)
