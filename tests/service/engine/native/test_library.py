"""The operators' library is built where there is a compiler, and is not missed where there is none."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from service.engine import providers
from service.engine.native import library
from service.engine.native.library import (
    FOLDER,
    CompilerFailed,
    NoLibrary,
    build,
    find_library,
    instructions_of,
    places,
)
from service.engine.providers import native_library
from service.engine.session import Session, SessionOptions
from tests.conftest import MakePackage, is_gone
from tests.service.engine.native.machine import needs_compiler
from tests.service.engine.test_teams import inputs_of

# A library that opens and names its instructions: what one computes is tested elsewhere, and takes ten times as long.
SMALL = """#include "linear.h"
extern "C" __attribute__((visibility("default"))) const char* TrifoldInstructions() { return "none"; }
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small sources lie in another folder, where nothing was built, and nothing is in the cache."""
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "operators.cpp").write_text(SMALL)
    (folder / "linear.h").write_text("// nothing\n")
    monkeypatch.setattr(library, "FOLDER", folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def all_elsewhere(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All sources lie there, and are built without optimising, which takes half the time."""
    shutil.copytree(FOLDER, elsewhere, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    monkeypatch.setattr(library, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in library.FLAGS))
    return elsewhere


@needs_compiler
def test_the_library_is_built_once_beside_its_sources(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = find_library(lambda path: None)
    assert path.parent == elsewhere / "__pycache__"
    assert [each.name for each in path.parent.iterdir()] == [path.name]

    monkeypatch.setattr(library, "COMPILERS", ())
    assert find_library(lambda path: None) == path


@needs_compiler
def test_other_sources_are_another_library(elsewhere: Path) -> None:
    before = build()
    (elsewhere / "linear.h").write_text((elsewhere / "linear.h").read_text() + "// another\n")

    assert build() != before


@needs_compiler
def test_who_may_not_write_beside_the_sources_has_the_library_in_a_cache(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "__pycache__").write_text("a file, where nobody can make a folder")

    assert build() == places()[1]
    assert places()[1].is_relative_to(Path("~").expanduser())


@needs_compiler
def test_who_has_no_home_has_the_library_beside_the_sources(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nobody)

    assert find_library(lambda path: None) == places()[0]


@needs_compiler
def test_what_another_could_have_put_there_is_not_loaded(elsewhere: Path) -> None:
    path, loaded = build(), list[Path]()
    path.parent.chmod(0o777)
    assert find_library(loaded.append) == places()[1]
    assert path not in loaded

    places()[1].parent.chmod(0o777)
    with pytest.raises(NoLibrary, match="may be written by all"):
        find_library(loaded.append)
    assert path not in loaded


@needs_compiler
def test_a_library_that_a_group_may_write_is_not_loaded_and_what_we_build_none_may_write(elsewhere: Path) -> None:
    mask = os.umask(0o002)
    try:
        path = build()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755

    path.chmod(0o775)
    assert find_library(lambda path: None) == path  # built anew
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


@needs_compiler
def test_a_kept_library_that_has_lost_its_content_is_built_anew(elsewhere: Path) -> None:
    path = build()
    path.write_bytes(b"")

    assert find_library(lambda path: ctypes.CDLL(str(path))) == path
    assert instructions_of(path)


@needs_compiler
@pytest.mark.parametrize("left_out", [library.WITHOUT_AVX_VNNI, library.WITHOUT_TILES])
def test_an_older_compiler_leaves_out_what_it_does_not_know(
    left_out: str, all_elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path / "c++"
    known = f"""case "$*" in *{left_out}*) exec {library.find_compilers()[0]} "$@";; esac"""
    older.write_text(f"""#!/bin/sh\n{known}\necho "Error: no such instruction: vpdpbusd" >&2; exit 1\n""")
    older.chmod(0o755)
    newer = library.COMPILERS
    monkeypatch.setattr(library, "COMPILERS", (str(older),))

    built = find_library(lambda path: None)
    assert instructions_of(built) and built not in places()
    os.utime(built, (1, 1))
    assert find_library(lambda path: None) == built and built.stat().st_mtime == 1  # found again
    monkeypatch.setattr(library, "COMPILERS", ())
    assert find_library(lambda path: None) == built
    monkeypatch.setattr(library, "COMPILERS", newer)
    assert find_library(lambda path: None) == places()[0]  # which knows all


@needs_compiler
def test_a_compiler_that_is_killed_leaves_nothing_out(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, tried = tmp_path / "c++", tmp_path / "tried"
    short.write_text(
        f"""#!/bin/sh\n[ -e {tried} ] && exec {library.find_compilers()[0]} "$@"\ntouch {tried}\n"""
        """echo "c++: fatal error: Killed signal terminated program cc1plus" >&2; exit 1\n"""
    )
    short.chmod(0o755)
    monkeypatch.setattr(library, "COMPILERS", (str(short),))

    with pytest.raises(CompilerFailed, match="Killed"):
        build()
    assert build() == places()[0]


@needs_compiler
def test_threads_that_build_at_the_same_time_do_not_mix_their_files(elsewhere: Path) -> None:
    with ThreadPoolExecutor(3) as threads:
        built = list(threads.map(lambda _: build(), range(3)))

    assert len(set(built)) == 1
    assert list(built[0].parent.iterdir()) == built[:1]
    ctypes.CDLL(str(built[0]))


@needs_compiler
def test_who_waited_for_another_process_builds_nothing(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place, _), compiled = places(), library.compile_library
    place.parent.mkdir()
    with ThreadPoolExecutor(1) as threads, library._alone_in(place.parent):
        waiting = threads.submit(build)
        time.sleep(0.2)
        assert not waiting.done()
        compiled(library.find_compilers()[0], place)
        place.chmod(0o755)
        monkeypatch.setattr(library, "compile_library", None)
    assert waiting.result() == place


@needs_compiler
def test_if_the_first_compiler_cannot_the_next_one_builds(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho \"c++: fatal error: cannot execute 'cc1plus'\" >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(library, "COMPILERS", (str(broken), *library.COMPILERS))

    assert build() == places()[0]


@needs_compiler
def test_what_a_killed_process_left_is_removed(elsewhere: Path) -> None:
    folder = places()[0].parent
    old, new = folder / f"{library.BUILDING}old", folder / f"{library.BUILDING}new"
    for rest in (old, new):
        rest.mkdir(parents=True)
        (rest / "half.so").write_text("")
    os.utime(old, (1, 1))

    build()
    assert not old.exists() and new.exists()  # which may be at work


def test_where_nothing_can_be_written_the_reason_is_told(elsewhere: Path, tmp_path: Path) -> None:
    (elsewhere / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")

    with pytest.raises(NoLibrary, match=r"nothing can be written|no C\+\+ compiler"):
        build()


def test_without_a_compiler_the_reason_is_told(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(NoLibrary, match=r"no C\+\+ compiler"):
        find_library(lambda path: None)


def test_what_a_compiler_says_is_told_and_nothing_is_left_behind(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'avx2.cpp:1: error: all is wrong' >&2\nexit 1\n")
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(library, "COMPILERS", (str(compiler),))

    with pytest.raises(NoLibrary, match="error: all is wrong"):
        find_library(lambda path: None)
    assert [path.suffix for path in (elsewhere / "__pycache__").iterdir()] == [".refused"]


@pytest.mark.parametrize(
    ("said", "told"), [("größe.cpp".encode(), "größe.cpp"), (b"gr\xf6\xdfe.cpp", "gr\ufffd\ufffde.cpp")]
)
def test_what_a_compiler_says_is_kept_whatever_the_locale_is(
    said: bytes, told: str, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_bytes(b"#!/bin/sh\necho '" + said + b": error: all is wrong' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(library, "COMPILERS", (str(compiler),))
    monkeypatch.setattr("io.text_encoding", lambda encoding, _level=2: encoding or "ascii")  # as in LC_ALL=C

    with pytest.raises(NoLibrary, match=f"{told}: error: all is wrong"):
        build()
    (kept,) = (elsewhere / "__pycache__").iterdir()
    assert told in kept.read_text(encoding="utf-8")


def test_who_waited_for_a_compiler_that_refuses_does_not_ask_it_again(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, tried = tmp_path / "c++", tmp_path / "tried"
    compiler.write_text(f"#!/bin/sh\necho once >> {tried}\nsleep 0.3\necho 'error: all is wrong' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(library, "COMPILERS", (str(compiler),))

    def refused(_number: int) -> str:
        with pytest.raises(NoLibrary) as error:
            build()
        return str(error.value)

    with ThreadPoolExecutor(3) as threads:
        said = set(threads.map(refused, range(3)))
    assert len(said) == 1 and "all is wrong" in said.pop()
    asked = len(tried.read_text().splitlines())
    refused(0)
    assert len(tried.read_text().splitlines()) == 2 * asked  # another time it is


@needs_compiler
@pytest.mark.parametrize("words", ["No space left on device", "Disk quota exceeded", "Read-only file system"])
def test_a_folder_that_takes_no_files_is_passed_over_for_the_next(
    words: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = library.compile_library
    beside, in_cache = places()

    def compile_where_there_is_space(compiler: str, target: Path, *further: str) -> None:
        if target.is_relative_to(beside.parent):
            raise CompilerFailed(f"{compiler} cannot build them: write: {words}")
        compiled(compiler, target, *further)

    monkeypatch.setattr(library, "compile_library", compile_where_there_is_space)
    assert build() == in_cache


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_compiler_that_takes_too_long_ends_with_its_children(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    children = tmp_path / "children"
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {children}\nwait\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(library, "PATIENCE_S", 3)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(NoLibrary, match="timed out"):
        build()
    pid, patience = int(children.read_text()), time.monotonic() + 10
    while not is_gone(pid) and time.monotonic() < patience:
        time.sleep(0.01)
    assert is_gone(pid)


def test_a_library_that_cannot_be_loaded_is_not_taken(elsewhere: Path) -> None:
    def refuse(path: Path) -> None:
        raise RuntimeError("the processor has no AVX2")

    with pytest.raises(NoLibrary, match="AVX2"):
        find_library(refuse)


def test_without_the_library_the_graph_runs_as_it_is(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    package, inputs = make_package("sentiment", "int8"), inputs_of(3, 7)
    path = package.folder / "encoder.onnx"
    (expected,) = Session(path, SessionOptions(1, native=False)).run(inputs, ["logits"])
    monkeypatch.setattr(library, "COMPILERS", ())
    native_library.cache_clear()
    try:
        with caplog.at_level("INFO", providers.logger.name):
            session = Session(path, SessionOptions(1))
    finally:
        native_library.cache_clear()

    assert "no C++ compiler" in caplog.text
    assert session._native is None
    np.testing.assert_array_equal(session.run(inputs, ["logits"])[0], expected)
