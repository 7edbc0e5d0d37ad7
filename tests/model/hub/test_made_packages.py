"""Packages that are made in a folder which one names."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from model.hub.errors import HubError
from model.hub.packages import ImportOptions, Packages
from model.package import Manifest, PackageError
from tests.conftest import TinyPackage
from tests.local_hub import LocalHub
from tests.model.conftest import AddModel

FLOAT32 = ImportOptions("float32")


def test_a_folder_that_no_model_can_be_named_after_is_refused_before_anything_is_downloaded(
    packages: Packages, running_hub: LocalHub, add_model: AddModel, tmp_path: Path
) -> None:
    add_model("Tiny/BERT")

    with pytest.raises(HubError, match=r"would be called 'BERT-Tiny'; names are 1 to 63 .* as in .*/bert-tiny$"):
        packages.make("Tiny/BERT", tmp_path / "BERT-Tiny", FLOAT32)
    assert running_hub.requests == []


def test_a_package_takes_no_checkpoints_place(packages: Packages, checkpoints: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoints / "bert", tmp_path / "bert")
    before = {path: path.read_bytes() for path in folder.iterdir()}

    with pytest.raises(HubError, match=r"there is a config\.json, as checkpoints have"):
        packages.make(str(folder), folder, FLOAT32)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_what_is_a_package_already_is_called_so(packages: Packages, sentiment: TinyPackage, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="it is a package already; copy the folder, or make another"):
        packages.make(str(sentiment.folder), tmp_path / "again", FLOAT32)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (".", r"^\.: the model would be called 'Here'; .* as in .*/here$"),
        ("..", r"^\.\.: the model would be called '\.\.'; .* as in .*/"),
        ("/", r"^/: the model would be called ''; .* as in /model$"),
        ("/proc/bert", r"^/proc/bert: /proc cannot be written to: .*; name another folder$"),
        ("a-file/bert", r"^a-file/bert: .*/a-file cannot be written to: Not a directory"),
        ("notes", "^notes: has files that are no package's"),
    ],
)
def test_a_place_that_cannot_have_a_package_is_refused_before_anything_is_downloaded(
    packages: Packages, running_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, words: str
) -> None:
    here = tmp_path / "Here"
    (here / "notes").mkdir(parents=True)
    (here / "notes" / "a-file").write_text("mine")
    (here / "a-file").write_text("mine")
    monkeypatch.chdir(here)

    with pytest.raises((HubError, PackageError), match=words):
        packages.make("Tiny/BERT", Path(out), FLOAT32)
    assert running_hub.requests == []


def test_a_package_may_be_made_where_one_stands(packages: Packages, checkpoints: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with chdir(tmp_path / "here"):
        packages.make(str(checkpoints / "bert"), Path(), FLOAT32)

    assert Manifest.load(tmp_path / "here").name == "here"
