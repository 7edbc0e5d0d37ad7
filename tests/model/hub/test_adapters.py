"""Adapters by name: with their bases, wherever the two are."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from model.checkpoints.errors import CheckpointError
from model.hub.download import Hub
from model.hub.errors import HubError, HubUnreachable
from model.hub.packages import ImportOptions, Packages
from model.package import Manifest
from tests.local_hub import LocalHub, Repository
from tests.model.conftest import AddModel

FLOAT32 = ImportOptions("float32")
MATRIX = "base_model.model.transformer.h.0.attn.c_attn"


def write_adapter(folder: Path, base: str | None, scale: float = 1.0, **fields: Any) -> Path:
    """Write what PEFT saves of a `gpt2`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": base, "lora_alpha": 4, **fields}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"{MATRIX}.lora_A.weight": torch.randn(2, 32, generator=generator) * scale,
        f"{MATRIX}.lora_B.weight": torch.randn(96, 2, generator=generator),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture
def on_hub(running_hub: LocalHub, add_model: AddModel, tmp_path: Path) -> Repository:
    """`tiny/adapter` on the hub, whose base is `tiny/gpt2` there."""
    add_model("tiny/gpt2", "gpt2")
    running_hub.repositories["tiny/adapter"] = Repository(write_adapter(tmp_path / "on_hub", "tiny/gpt2"))
    return running_hub.repositories["tiny/adapter"]


def weights(package: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(package.iterdir()) if path.suffix in {".onnx", ".data"})


def test_an_adapter_is_joined_with_the_base_that_it_names(
    packages: Packages, on_hub: Repository, tmp_path: Path
) -> None:
    folder = packages.find("tiny/adapter", FLOAT32)
    manifest = Manifest.load(folder)

    assert (manifest.name, manifest.family, manifest.task) == ("adapter", "gpt2", "generate")
    assert manifest.licence == "apache-2.0"  # its base's, as it states none of its own
    assert weights(folder) != weights(packages.find("tiny/gpt2", FLOAT32))

    local = packages.find(str(write_adapter(tmp_path / "local", "tiny/gpt2")), FLOAT32)
    assert weights(local) == weights(folder)
    packages.make("tiny/adapter", tmp_path / "made", FLOAT32)
    assert weights(tmp_path / "made") == weights(folder)


def test_the_licences_of_both_are_told(packages: Packages, on_hub: Repository) -> None:
    (on_hub.folder / "README.md").write_text("---\nlicense: mit\n---\n")

    assert Manifest.load(packages.find("tiny/adapter", FLOAT32)).licence == "mit and apache-2.0"


def test_an_adapter_of_the_hub_chooses_no_folder_of_this_machine(
    packages: Packages, checkpoints: Path, on_hub: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(checkpoints / "gpt2", tmp_path / "work" / "output")
    monkeypatch.chdir(tmp_path / "work")
    theirs = str(checkpoints / "gpt2")
    for base, problem in (("output", "there is no such model"), (theirs, "chooses no folder of this machine")):
        write_adapter(on_hub.folder, base)
        with pytest.raises(HubError, match=problem):
            packages.find("tiny/adapter", FLOAT32)
    packages.find("tiny/adapter", replace(FLOAT32, base="output"))


def test_the_revision_of_a_base_is_the_one_that_the_adapter_names(packages: Packages, on_hub: Repository) -> None:
    for revision, problem in (("none", "has no branch, tag or commit 'none'"), ("../other", "chooses no folder")):
        write_adapter(on_hub.folder, "tiny/gpt2", revision=revision)
        with pytest.raises(HubError, match=problem):
            packages.find("tiny/adapter", FLOAT32)


def test_a_package_is_made_anew_when_either_changes(
    packages: Packages, checkpoints: Path, tmp_path: Path, running_hub: LocalHub, on_hub: Repository
) -> None:
    first = packages.find("tiny/adapter", FLOAT32)
    assert packages.find("tiny/adapter", FLOAT32) == first

    write_adapter(on_hub.folder, "tiny/gpt2", scale=2.0)
    second = packages.find("tiny/adapter", FLOAT32)
    assert weights(second) != weights(first)
    (running_hub.repositories["tiny/gpt2"].folder / "README.md").write_text("---\nlicense: mit\n---\n")
    third = packages.find("tiny/adapter", FLOAT32)
    assert third != second and Manifest.load(third).licence == "mit"


def test_what_was_made_of_an_adapter_is_found_without_the_hub_and_without_torch(
    packages: Packages,
    hub: Hub,
    on_hub: Repository,
    running_hub: LocalHub,
    checkpoints: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, pinned = packages.find("tiny/adapter", FLOAT32), f"tiny/adapter@{on_hub.commit}"
    other = Path(shutil.copytree(checkpoints / "gpt2", tmp_path / "other"))
    on_another = replace(FLOAT32, base=str(other))
    of_commit, elsewhere = packages.find(pinned, FLOAT32), packages.find("tiny/adapter", on_another)
    monkeypatch.setitem(sys.modules, "torch", None)
    running_hub.requests.clear()

    assert packages.find("tiny/adapter", FLOAT32) == folder
    assert running_hub.asked_for("model.safetensors") == running_hub.asked_for("adapter_model.safetensors") == []
    assert hub.folder is not None
    shutil.rmtree(hub.folder)
    offline = replace(packages, hub=replace(hub, offline=True))
    assert offline.find("tiny/adapter", FLOAT32) == folder
    assert offline.find(pinned, FLOAT32) == of_commit
    assert offline.find("tiny/adapter", on_another) == elsewhere
    (other / "README.md").write_text("changed")
    for options in (ImportOptions("int8"), on_another):
        with pytest.raises(HubUnreachable):
            offline.find("tiny/adapter", options)


def test_another_base_may_be_given(packages: Packages, checkpoints: Path, tmp_path: Path, on_hub: Repository) -> None:
    adapter = str(write_adapter(tmp_path / "moved", "/content/drive/base"))
    with pytest.raises(HubError, match=r"its base, as adapter_config\.json has it, is not here .*give .* as --base"):
        packages.find(adapter, FLOAT32)

    given = packages.find(adapter, replace(FLOAT32, base=str(checkpoints / "gpt2")))
    assert weights(given) == weights(packages.find("tiny/adapter", FLOAT32))
    with pytest.raises(HubError, match=r"does not say for which model it is; give that as --base"):
        packages.find(str(write_adapter(tmp_path / "nameless", None)), FLOAT32)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("stories", "its base must be a checkpoint, and stories is a package"),
        ("tiny/none", r"its base: tiny/none: there is no such model"),
        ("tiny/adapter", r"is that of an adapter .*, and no model; name the model it is for"),
    ],
)
def test_a_base_must_be_a_whole_checkpoint(
    base: str, message: str, packages: Packages, tmp_path: Path, on_hub: Repository
) -> None:
    adapter = str(write_adapter(tmp_path / "local", "tiny/gpt2"))
    with pytest.raises((HubError, CheckpointError), match=message):
        packages.find(adapter, replace(FLOAT32, base=base))


def test_what_is_no_adapter_has_no_base(packages: Packages, checkpoints: Path) -> None:
    with pytest.raises(HubError, match="it is no adapter; leave base out"):
        packages.find(str(checkpoints / "gpt2"), replace(FLOAT32, base="tiny/gpt2"))
    with pytest.raises(HubError, match="it is a package already, of which that is settled; leave base out"):
        packages.find("stories", ImportOptions(base="tiny/gpt2"))


def test_beside_a_whole_model_an_adapter_is_still_that_of_its_base(
    packages: Packages, checkpoints: Path, tmp_path: Path, on_hub: Repository
) -> None:
    shutil.copytree(checkpoints / "bert", tmp_path / "both")
    folder = packages.find(str(write_adapter(tmp_path / "both", "tiny/gpt2")), FLOAT32)

    assert Manifest.load(folder).family == "gpt2"


def test_what_is_refused_is_refused_before_weights_are_downloaded(
    packages: Packages, on_hub: Repository, running_hub: LocalHub
) -> None:
    write_adapter(on_hub.folder, "tiny/gpt2", lora_bias=True)
    for refusing in (packages.check, packages.find):
        with pytest.raises(CheckpointError, match="lora_bias is True"):
            refusing("tiny/adapter", FLOAT32)
    write_adapter(on_hub.folder, "tiny/gpt2", task_type="QUESTION_ANS")
    with pytest.raises(CheckpointError, match=r"^tiny/adapter on tiny/gpt2: config\.json: architectures is"):
        packages.find("tiny/adapter", FLOAT32)
    assert running_hub.asked_for("model.safetensors") == []


def test_a_pickled_adapter_needs_to_be_allowed(packages: Packages, on_hub: Repository) -> None:
    (on_hub.folder / "adapter_model.safetensors").unlink()
    tensors = {f"{MATRIX}.lora_A.weight": torch.ones(2, 32), f"{MATRIX}.lora_B.weight": torch.ones(96, 2)}
    torch.save(tensors, on_hub.folder / "adapter_model.bin")

    with pytest.raises(HubError, match=r"adapter_model\.bin, a pickle, which may run code .* give --allow-pickle"):
        packages.find("tiny/adapter", FLOAT32)
    packages.find("tiny/adapter", replace(FLOAT32, allow_pickle=True))


def test_the_last_adapter_of_a_training_is_named(packages: Packages, tmp_path: Path) -> None:
    for step in (50, 100):
        write_adapter(tmp_path / f"checkpoint-{step}", "tiny/gpt2")

    with pytest.raises(CheckpointError, match=r"did you mean .*checkpoint-100\?"):
        packages.find(str(tmp_path), FLOAT32)
