from __future__ import annotations

from pathlib import Path

import pytest

from model.storage.errors import StorageError
from model.storage.listing import read_list

PINNED = "a" * 64


def test_a_list_names_the_folders_of_packages(tmp_path: Path) -> None:
    file = tmp_path / "packages.yaml"
    file.write_text(
        f"packages:\n- {{name: a, from: 'https://store/a', sha256: {PINNED}}}\n- {{name: b, from: 's3://bucket/b'}}\n"
    )

    (first, pinned), (second, other) = read_list(file)

    assert (first, str(pinned.address), pinned.sha256) == ("a", "https://store/a/manifest.json", PINNED)
    assert (second, str(other.address), other.sha256) == ("b", "s3://bucket/b/manifest.json", None)


@pytest.mark.parametrize("content", ["", "- a", "packages"])
def test_a_file_that_is_no_list_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "packages.yaml"
    file.write_text(content)

    with pytest.raises(StorageError, match=r"packages\.yaml: must have packages, a list"):
        read_list(file)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ("[]", "packages: List should have at least 1 item"),
        ("[{name: ../a, from: 'https://store/a'}]", "packages.0.name: String should match"),
        ("[{name: a, from: 'https://store/a', sha256: abc}]", "packages.0.sha256: String should match"),
        ("[{name: a, from: 'https://store/a', sha265: abc}]", "packages.0.sha265: Extra inputs"),
        ("[{name: a, from: 'ftp://store/a'}]", "ftp://store/a: an address begins with one of"),
        ("[{name: a, from: 'http://store/a'}]", "give its sha256"),
        ("[{name: a, from: 's3://store/a'}, {name: a, from: 's3://store/b'}]", "packages.1.name: a is there twice"),
        ("[", "packages.yaml: not YAML, line 1: while parsing a flow node"),
        ("[" * 9000, "packages.yaml: not YAML: nested too deeply"),
        ("!!bool x", "packages.yaml: not YAML: a value is not what"),
    ],
)
def test_a_list_that_is_wrong_says_where(tmp_path: Path, entries: str, problem: str) -> None:
    file = tmp_path / "packages.yaml"
    file.write_text(f"packages: {entries}")

    with pytest.raises(StorageError) as caught:
        read_list(file)
    assert problem in str(caught.value)
