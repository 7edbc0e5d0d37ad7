"""Ray's files are where no other user of the machine may write."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.ray_processes import KEPT_SESSIONS, LONGEST_PLACE, ray_folder, remove_old_sessions
from service.settings_errors import SettingsError
from service.startup import SHORT_PLACE

NAME = f"trifold-{os.getuid()}"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Ray's usual place, as short as it is elsewhere."""
    with tempfile.TemporaryDirectory(dir=SHORT_PLACE, prefix="t") as folder:
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        monkeypatch.setattr("service.ray_processes.temporary_place", lambda: folder)
        monkeypatch.setattr("service.ray_processes.SHORT_PLACE", folder)
        yield Path(folder)


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@pytest.mark.parametrize("made_before", [False, True])
def test_rays_folder_lies_in_one_that_nobody_else_may_enter_and_is_the_same_the_next_time(
    place: Path, made_before: bool
) -> None:
    if made_before:
        (place / NAME).mkdir(mode=0o755)
    first, second = ray_folder(), ray_folder()

    assert first == second == place / NAME / "ray"
    assert mode(first.parent) == 0o700


@pytest.mark.parametrize("taken", ["open to all", "a link", "a file"])
def test_what_somebody_else_may_have_put_there_is_not_used(place: Path, taken: str) -> None:
    own = place / NAME
    if taken == "open to all":
        own.mkdir()
        own.chmod(0o777)
    elif taken == "a link":
        (place / "elsewhere").mkdir(mode=0o700)
        own.symlink_to(place / "elsewhere")
    else:
        own.touch()

    found = ray_folder()
    assert found.parent != own and found.parent.parent == place and mode(found.parent) == 0o700


@pytest.mark.parametrize("name", ["x" * LONGEST_PLACE, "größe"])
def test_a_place_that_is_too_long_for_sockets_or_not_in_ascii_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("service.ray_processes.temporary_place", lambda: str(place / name))

    assert ray_folder() == place / NAME / "ray"


def test_a_place_of_rays_own_variable_is_used_or_refused_by_its_name(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "r").mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(place / "r"))
    assert ray_folder() == place / "r" / NAME / "ray"

    for named, problem in (
        ("r", "RAY_TMPDIR: r must be an absolute path"),
        (f"{place}/n", "/n: no folder can be made there: No such file or directory; name another place in RAY_TMPDIR"),
    ):
        monkeypatch.setenv("RAY_TMPDIR", named)
        with pytest.raises(SettingsError, match=problem):
            ray_folder()


@pytest.mark.parametrize("named", ["", "/nowhere"])
def test_what_tmpdir_names_is_passed_over_where_nothing_can_be_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    with tempfile.TemporaryDirectory(dir=SHORT_PLACE, prefix="t") as usable:
        monkeypatch.setattr(tempfile, "tempdir", None)  # what was found before
        monkeypatch.setenv("TMPDIR", named)
        monkeypatch.setenv("TEMP", usable)

        assert ray_folder() == Path(usable, NAME, "ray")


def test_old_sessions_are_removed_but_for_the_newest_and_those_that_run(tmp_path: Path) -> None:
    ended = [tmp_path / f"session_2026-01-{day:02}_10-00-00_123456_1" for day in range(1, 11)]
    runs, other = tmp_path / "session_2025-01-01_10-00-00_123456_1", tmp_path / "notes"
    for folder in (*ended, runs, other):
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "raylet.out").touch()
        for path in (folder / "logs" / "raylet.out", folder / "logs", folder):
            os.utime(path, (0, 0))
    os.utime(runs / "logs" / "raylet.out")
    (tmp_path / "session_latest").symlink_to(ended[-1])
    remove_old_sessions(tmp_path)

    left = {*ended[-KEPT_SESSIONS:], runs, other, tmp_path / "session_latest"}
    assert set(tmp_path.iterdir()) == left
