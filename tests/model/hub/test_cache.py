from __future__ import annotations

import errno
import inspect
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from model.export.runs import tokens_of
from model.hub.cache import EXPORTER, PackageCache, exporter_version, key_of
from model.hub.errors import HubError
from model.hub.names import BUNDLED, HubName
from tests.conftest import TinyPackage

Make = Callable[[Path], None]


@pytest.fixture
def cache(tmp_path: Path) -> PackageCache:
    return PackageCache(tmp_path / "cache")


@pytest.fixture
def make(sentiment: TinyPackage) -> Make:
    def copy(out: Path) -> None:
        shutil.copytree(sentiment.folder, out)

    return copy


def never(_out: Path) -> None:
    raise AssertionError("made again")


def test_a_package_is_made_once(cache: PackageCache, make: Make) -> None:
    assert cache.get("a") is None

    folder = cache.get_or_make("a", make)

    assert cache.get_or_make("a", never) == folder == cache.get("a")


def test_processes_that_want_the_same_package_wait_for_the_one_that_makes_it(cache: PackageCache, make: Make) -> None:
    begun, may_end = threading.Event(), threading.Event()
    made: list[Path] = []
    found: list[Path] = []
    told: list[str] = []

    def slowly(out: Path) -> None:
        begun.set()
        assert may_end.wait(30)
        make(out)
        made.append(out)

    def tell(text: str) -> None:
        told.append(text)
        may_end.set()

    threads = [threading.Thread(target=lambda: found.append(cache.get_or_make("a", slowly, tell))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    for thread in threads:
        thread.join()

    assert len(made) == 1 and len(found) == 2 and len(set(found)) == 1
    assert told == ["a: another process is importing it; waiting until it is done"]


def test_what_was_interrupted_is_begun_again(cache: PackageCache, make: Make) -> None:
    def interrupted(out: Path) -> None:
        make(out)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_make("a", interrupted)

    assert cache.get("a") is None
    assert cache.get(cache.get_or_make("a", make).name) is not None


def test_a_package_that_was_damaged_is_made_again(cache: PackageCache, make: Make) -> None:
    folder = cache.get_or_make("a", make)
    (folder / "encoder.onnx").write_bytes(b"")

    assert cache.get("a") is None
    assert cache.get_or_make("a", make) == cache.get("a")


def test_a_key_depends_on_everything_that_a_package_is_made_of() -> None:
    parts = {"revision": "1", "precision": "int8"}
    keys = {key_of("bert", **{**parts, **change}) for change in ({}, {"revision": "2"}, {"precision": "float32"})}

    assert len(keys) == 3
    assert key_of("bert", **parts) in keys
    assert all(key.startswith("bert-") for key in keys)


def test_our_own_code_is_part_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of("bert", revision="1")
    monkeypatch.setattr("model.hub.cache.exporter_version", lambda: "another")

    assert key_of("bert", revision="1") != before


def test_a_change_of_what_makes_packages_is_another_version_and_of_other_code_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config.py", "layers/norms.py", "training/loop.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr("model.hub.cache.__file__", str(tmp_path / "hub" / "cache.py"))
    version_now = exporter_version.__wrapped__  # which remembers nothing

    versions = [version_now()]
    for name in ("training/loop.py", "config.py", "layers/norms.py"):
        (tmp_path / name).write_text("another")
        versions.append(version_now())
    (tmp_path / "layers" / "norms.py").rename(tmp_path / "layers" / "norm.py")
    versions.append(version_now())

    assert versions[0] == versions[1]
    assert len(set(versions[1:])) == 4


def test_all_that_makes_packages_is_where_it_is_looked_for() -> None:
    assert all((BUNDLED.parent / name).exists() for name in EXPORTER)
    assert Path(inspect.getfile(tokens_of)).relative_to(BUNDLED.parent).parts[0] in EXPORTER  # ids in the manifest


def test_what_processes_that_were_killed_left_is_removed_unless_it_is_being_made(
    cache: PackageCache, make: Make
) -> None:
    left, going_on = (cache.folder / "partial" / name for name in ("b-of-older-code", "c"))
    for folder in (left, going_on):
        (folder / ".export-1").mkdir(parents=True)
    with FileLock(f"{going_on}.lock"):
        cache.get_or_make("a", make)

    assert not left.exists() and going_on.exists()


def test_it_remembers_what_a_branch_meant(cache: PackageCache) -> None:
    assert cache.remembered(HubName("org/name")) is None
    cache.remember(HubName("org/name"), "1" * 40)
    cache.remember(HubName("org/name", "refs/pr/1"), "2" * 40)

    assert cache.remembered(HubName("org/name")) == "1" * 40
    assert cache.remembered(HubName("org/name", "refs/pr/1")) == "2" * 40
    assert cache.remembered(HubName("org/other", "3" * 40)) == "3" * 40


def test_a_package_in_a_cache_that_cannot_be_written_to_is_there_all_the_same(
    cache: PackageCache, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name, folder = HubName("org/name"), cache.get_or_make("a", make)
    cache.remember(name, "1" * 40)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for write in ("mkdir", "open", "rename"):
        monkeypatch.setattr(os, write, refuse)
    assert cache.get_or_make("a", never) == folder
    cache.remember(name, "1" * 40)
    assert caplog.text == ""

    cache.remember(name, "2" * 40)
    assert "org/name: its revision cannot be noted" in caplog.text
    assert cache.remembered(name) == "1" * 40


def test_who_has_no_home_is_told_what_to_set(no_home: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HubError, match=r"^there is no home folder; set TRIFOLD_CACHE_DIR$"):
        PackageCache().get("a")

    monkeypatch.setenv("TRIFOLD_CACHE_DIR", str(tmp_path))
    assert PackageCache().get("a") is None


def test_it_lies_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TRIFOLD_CACHE_DIR", raising=False)
    assert PackageCache().folder == tmp_path / "trifold"

    monkeypatch.setenv("TRIFOLD_CACHE_DIR", str(tmp_path / "mine"))
    assert PackageCache().folder == tmp_path / "mine"

    monkeypatch.delenv("TRIFOLD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # as if it were not set, by its specification
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert PackageCache().folder == tmp_path / "home" / ".cache" / "trifold"
