from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from model.commands.models_file import check_apart, find_apart, read_entries, with_fitting_positions, with_packages
from model.hub.errors import HubError
from model.hub.packages import ImportOptions
from service.engine.kv_cache import bytes_of_longest
from service.models_file import ModelSettings
from service.settings import Settings
from service.settings_errors import SettingsError
from tests.conftest import MakePackage, TinyPackage

Asked = list[tuple[str, ImportOptions]]


def resolve(entries: list[dict[str, Any]]) -> tuple[list[Any], Asked]:
    """Return the entries with packages, and what was looked for."""
    asked: Asked = []

    def find(name: str, options: ImportOptions) -> Path:
        asked.append((name, options))
        return Path("/cache") / name

    return with_packages(entries, find, lambda _models: None), asked


def test_names_become_packages_and_keep_what_is_for_the_service() -> None:
    entries, asked = resolve(
        [
            {"model": "Org/Chat", "precision": "int8-blocks", "max_slots": 16},
            {"model": "org/mt", "languages": ["en", "de"], "name": "en-de"},
            {"model": "org/vectors", "pooling": "cls", "aliases": ["ada"]},
            {"package": "/packages/mine", "threads": 2},
        ]
    )

    assert entries == [
        {"package": "/cache/Org/Chat", "name": "chat", "aliases": ["Org/Chat"], "max_slots": 16},
        {"package": "/cache/org/mt", "name": "en-de", "aliases": ["org/mt"]},
        {"package": "/cache/org/vectors", "name": "vectors", "aliases": ["ada", "org/vectors"]},
        {"package": "/packages/mine", "threads": 2},
    ]
    chat, translator = ("Org/Chat", ImportOptions("int8-blocks")), ("org/mt", ImportOptions(languages=("en", "de")))
    assert asked == [chat, translator, ("org/vectors", ImportOptions(pooling="cls"))]


def test_models_of_one_name_get_names_that_differ() -> None:
    entries, _ = resolve([{"model": "a/bert"}, {"model": "b/bert"}, {"model": "c/x", "name": "b-bert"}])

    assert [entry["name"] for entry in entries] == ["bert", "b-bert-2", "b-bert"]


def test_of_two_models_of_one_hub_name_the_first_is_called_so() -> None:
    entries, _ = resolve([{"model": "a/bert"}, {"model": "a/bert@next", "precision": "float32"}, {"model": "gpt2"}])

    assert [entry.get("aliases") for entry in entries] == [["a/bert"], None, None]


def test_a_hub_name_is_left_to_whom_it_was_given_and_to_the_main_revision() -> None:
    given, _ = resolve([{"model": "a/bert", "name": "old"}, {"package": "/mine", "aliases": ["a/bert"]}])
    assert [entry.get("aliases") for entry in given] == [None, ["a/bert"]]

    revisions, _ = resolve([{"model": "a/bert@next"}, {"model": "a/bert"}, {"model": "b/one@v2"}])
    assert [entry.get("aliases") for entry in revisions] == [None, ["a/bert"], ["b/one"]]

    unfit, _ = resolve([{"model": "_org/bert"}])  # no name for HAProxy's maps
    assert "aliases" not in unfit[0]


def test_of_several_names_all_are_checked_before_any_is_made_a_package(tmp_path: Path) -> None:
    done: list[str] = []

    def find(name: str, _options: ImportOptions) -> Path:
        done.append(f"find {name}")
        return tmp_path

    with_packages(
        [{"model": "a/one"}, {"package": "/mine"}, {"model": "b/two"}],
        find,
        lambda models: done.extend(f"check {name}" for name, _ in models),
    )
    assert done == ["check a/one", "check b/two", "find a/one", "find b/two"]
    with pytest.raises(HubError, match=r"none: there is no such folder"):
        check_apart([("stories", ImportOptions()), ("./none", ImportOptions())])


def test_a_bundled_package_keeps_its_name() -> None:
    entries, _ = resolve([{"model": "stories"}])

    assert "name" not in entries[0]


def test_a_model_of_the_hub_leaves_its_name_to_a_package_that_is_there(sentiment: TinyPackage) -> None:
    for package in ({"package": str(sentiment.folder)}, {"model": str(sentiment.folder)}):
        entries, _ = resolve([{"model": "acme/sentiment"}, package])
        assert entries[0]["name"] == "acme-sentiment"


def test_two_models_of_one_name_are_refused_before_anything_is_looked_for(sentiment: TinyPackage) -> None:
    package = {"package": str(sentiment.folder)}
    named = {"model": "a/b", "name": "sentiment"}
    for doubled in ([named, {"package": "/c", "name": "sentiment"}], [package, package], [named, package]):
        with pytest.raises(SettingsError, match="two models are called sentiment"):
            with_packages([{"model": "a/c"}, *doubled], lambda *_: pytest.fail("looked for"), lambda _: None)


@pytest.mark.parametrize(("file", "source"), [(None, "--set"), (Path("/own/models.yaml"), "/own/models.yaml")])
def test_shares_of_more_than_all_are_refused_before_anything_is_looked_for(file: Path | None, source: str) -> None:
    entries = [{"model": name, "memory_share": 0.6} for name in ("a/b", "a/c")]
    with pytest.raises(SettingsError, match=f"^{source}: memory_share: those that are set.* come to 1.2"):
        with_packages(entries, lambda *_: pytest.fail("looked for"), lambda _: None, file)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"model": "a/b", "max_slot": 1}, r"models\.1: max_slot: not known; did you mean max_slots\?"),
        ({"model": "a/b", "max_slots": 0}, r"models\.1: max_slots: .*greater than or equal to 1"),
        ({"model": "a/b", "precision": "int3"}, r"models\.1: precision: .*'float32', 'float16', 'int8'"),
        ({"model": "a/b", "name": "A B"}, r"models\.1: name: "),
        ({"package": "c", "pooling": "cls"}, r"models\.1: pooling: not a field here, but in another place"),
        ({"package": "c", "min_replicas": 2}, r"models\.1: min_replicas: not a field here, but in another place"),
        ({"model": "a/b", "package": "c"}, r"models\.1: either model or package"),
        ({"threads": 2}, r"models\.1: package: Field required"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_looked_for(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        with_packages([{"model": "a/first"}, entry], lambda *_: pytest.fail("looked for"), lambda _: None)


def test_paths_of_a_models_file_are_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    (tmp_path / "runs" / "bert").mkdir(parents=True)
    entries = [
        "package: mine",
        "model: ./checkpoint",
        "model: runs/bert",
        "model: ''",
        "model: org/name\n  max_slots: 2",
    ]
    path.write_text("models:\n" + "".join(f"- {entry}\n" for entry in entries))

    assert read_entries(path) == [
        {"package": str(tmp_path / "mine")},
        {"model": str(tmp_path / "checkpoint")},
        {"model": str(tmp_path / "runs" / "bert")},
        {"model": ""},
        {"model": "org/name", "max_slots": 2},
    ]


@pytest.mark.parametrize("content", ["", "models: 3", "models: [a]", "models: []", "- model: a/b"])
def test_a_file_that_is_no_models_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(content)
    with pytest.raises(SettingsError, match="must be a list of models, at least one, each with package or model"):
        read_entries(path)
    with pytest.raises(SettingsError, match=r"none\.yaml: No such file .* TRIFOLD_MODELS_FILE names the models file"):
        read_entries(tmp_path / "none.yaml")


def test_what_is_wrong_in_a_models_file_is_told_with_its_path() -> None:
    file = Path("/etc/models.yaml")
    doubled = [{"model": "a/b", "name": "one"}, {"package": "c", "name": "one"}]
    for entries, words in (([{"model": "a/b", "max_slot": 1}], r"models\.0: max_slot"), (doubled, "two models are")):
        with pytest.raises(SettingsError, match=f"^/etc/models.yaml: {words}"):
            with_packages(entries, lambda *_: pytest.fail("looked for"), lambda _: None, file)


def test_the_service_reads_what_comes_out(tmp_path: Path) -> None:
    entries, _ = resolve([{"model": "a/bert", "max_slots": 3}])
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump({"models": entries}))

    (model,) = Settings(models_file=path).models()
    assert (str(model.package), model.name, model.max_slots) == ("/cache/a/bert", "bert", 3)


def test_a_package_is_found_in_a_process_of_its_own() -> None:
    assert find_apart("stories", ImportOptions()).name == "stories"

    with pytest.raises(HubError, match="there is no such folder"):  # raised there, and here again
        find_apart("./none", ImportOptions())


def test_an_import_that_is_killed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.commands.models_file._find", ended_by_the_kernel)

    with pytest.raises(HubError, match="org/name: its import was killed; most likely there is too little memory"):
        find_apart("org/name", ImportOptions())
    monkeypatch.setattr("model.commands.models_file._check_all", ended_by_the_kernel)
    with pytest.raises(HubError, match="the check of the models was killed"):
        check_apart([("org/name", ImportOptions())])


def ended_by_the_kernel(*_: object) -> Path:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_positions_are_as_many_as_memory_holds_unless_they_are_set(
    make_package: MakePackage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = make_package("stories").manifest
    long = tiny.model_copy(
        update={
            "limits": tiny.limits.model_copy(update={"max_positions": 100_000}),
            "config": {**tiny.config, "max_positions": 100_000},
        }
    )
    long.save(tmp_path)
    needed = bytes_of_longest(long)
    monkeypatch.setattr("service.tasks.kv_budget.memory_limit", lambda: needed)  # caches may take half of it
    entries = [{"package": str(folder)} for folder in (tmp_path, make_package("sentiment").folder)]
    set_ones = [{**entry, "max_positions": 8} for entry in entries]

    (fitted, untouched) = with_fitting_positions(entries, [ModelSettings(**entry) for entry in entries])

    assert 0 < fitted["max_positions"] <= 51_000  # whole pages
    assert untouched == entries[1]
    assert f"stories: at most {fitted['max_positions']} tokens of prompt and output" in capsys.readouterr().out
    assert with_fitting_positions(set_ones, [ModelSettings(**entry) for entry in set_ones]) == set_ones
