from __future__ import annotations

import time
from pathlib import Path

import pytest

from service.pacing import paced


def fail(folder: Path | None, application: str = "a") -> list[float]:
    waited: list[float] = []

    def wait(_: Path, seconds: float) -> None:
        waited.append(seconds)

    with pytest.raises(ValueError, match="damaged"), paced(folder, application, wait):
        raise ValueError("damaged")
    return waited


def test_a_replica_that_fails_again_and_again_waits_longer_each_time_and_a_minute_at_most(tmp_path: Path) -> None:
    waited = [fail(tmp_path) for _ in range(12)]

    assert waited == [[], [], [], [2], [4], [8], [16], [32], [60], [60], [60], [60]]
    assert fail(tmp_path, "b") == []


def test_a_replica_that_starts_ends_the_count(tmp_path: Path) -> None:
    for _ in range(5):
        fail(tmp_path)
    with paced(tmp_path, "a", lambda *_: pytest.fail("it waits")):
        pass

    assert fail(tmp_path) == []


def test_without_a_folder_that_can_be_written_to_nothing_is_waited(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "none"):
        for _ in range(5):
            assert fail(folder) == []


def test_a_service_that_shuts_down_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "failed-starts-a").write_text("20")
    (tmp_path / "draining").touch()
    started = time.monotonic()

    with pytest.raises(ValueError, match="damaged"), paced(tmp_path, "a"):
        raise ValueError("damaged")
    assert time.monotonic() - started < 30
