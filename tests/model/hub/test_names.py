from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.hub.errors import HubError
from model.hub.names import BUNDLED, MAX_NAME_LENGTH, HubName, parse_name, served_name
from model.package.manifest import FILE_NAME, NAME_PATTERN


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", HubName("sentence-transformers/all-MiniLM-L6-v2")),
        ("gpt2", HubName("gpt2")),
        ("org/name@v1.0", HubName("org/name", "v1.0")),
        ("org/name@refs/pr/1", HubName("org/name", "refs/pr/1")),
        ("sentiment", BUNDLED / "sentiment"),
    ],
)
def test_a_name_means_a_bundled_package_or_a_model_on_the_hub(name: str, meant: object) -> None:
    assert parse_name(name) == meant


def test_a_folder_that_exists_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert parse_name("org/name") == Path("org/name")
    assert parse_name("org/other") == HubName("org/other")


@pytest.mark.parametrize(
    "name", ["./none", "/none", "~none-is-called-so/x", "a/b/c", "", "org/", "org/na me", "org/name@", "org/name@a b"]
)
def test_what_can_be_no_name_is_refused(name: str) -> None:
    with pytest.raises(HubError, match=r"there is no such folder, and models on the hub are named|no branch, tag"):
        parse_name(name)


def test_a_model_is_served_by_the_last_part_of_its_name() -> None:
    assert served_name(HubName("sentence-transformers/all-MiniLM-L6-v2")) == "all-minilm-l6-v2"
    assert served_name(HubName("Qwen/Qwen3-0.6B")) == "qwen3-0.6b"
    assert served_name(Path("/models/My Model!")) == "my-model"


def test_models_of_one_name_are_told_apart() -> None:
    taken: set[str] = set()
    for name in (HubName("a/bert"), HubName("b/BERT"), HubName("b/bert", "v2"), HubName("b/bert", "v3")):
        taken.add(served_name(name, taken))

    assert taken == {"bert", "b-bert", "b-bert-2", "b-bert-3"}


def test_a_served_name_fits_into_an_address() -> None:
    assert len(served_name(HubName(f"org/{'x' * 90}"))) == MAX_NAME_LENGTH
    assert served_name(HubName("org/_private_")) == "private"
    long = HubName(f"org/{'x' * 90}")
    taken = {served_name(long), served_name(long, {served_name(long)})}
    assert re.fullmatch(NAME_PATTERN, served_name(long, taken))


def test_bundled_packages_are_where_they_are_looked_for() -> None:
    assert (BUNDLED / "translate" / FILE_NAME).is_file()
