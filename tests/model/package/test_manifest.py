from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from model.package import Manifest, PackageError
from tests.conftest import TinyPackage


@pytest.fixture
def folder(translate: TinyPackage, tmp_path: Path) -> Path:
    """A package that may be spoilt."""
    return Path(shutil.copytree(translate.folder, tmp_path / "package"))


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_manifest_survives_being_written_and_read(folder: Path) -> None:
    manifest = Manifest.load(folder)
    manifest.save(folder)

    assert Manifest.load(folder) == manifest


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"there is no manifest\.json"):
        Manifest.load(tmp_path)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "decoder.onnx").unlink()

    with pytest.raises(PackageError, match=r"decoder\.onnx is missing"):
        Manifest.load(folder)


def test_a_changed_file_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")

    with pytest.raises(PackageError, match=r"tokenizer\.json differs from the sha256"):
        Manifest.load(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "sing"}, "task"),
        ({"name": "Not A Name"}, "name"),
        ({"format_version": 1}, "format_version"),
        ({"surprise": 1}, "surprise"),
        ({"cache": None}, "needs cache"),
        ({"directions": []}, "needs directions"),
        ({"graphs": {}}, "needs the graphs"),
        ({"task": "classify", "labels": []}, "needs labels"),
        ({"sha256": {}}, "sha256 lacks"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, changes: dict[str, Any], words: str) -> None:
    edit(folder, **changes)

    with pytest.raises(PackageError, match=words) as error:
        Manifest.load(folder)
    assert str(folder) in str(error.value)


def test_a_source_asks_for_its_language_and_ends_once(translate: TinyPackage) -> None:
    manifest = translate.manifest
    first, end = manifest.language_ids["sv"], manifest.special_ids.end
    assert end is not None

    assert manifest.source_of([7, 8], "sv") == [first, 7, 8, end]
    assert manifest.source_of([7, 8, end], "sv") == [first, 7, 8, end]  # from a tokenizer that ends texts itself
    assert manifest.model_copy(update={"language_ids": {}}).source_of([7], "sv") == [7, end]
