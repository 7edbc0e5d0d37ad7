from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from service import metrics_files
from service.metrics_files import AllocatedDict, NodeCollector, fold, process_name
from tests.service.api.conftest import series

ALIVE = process_name()


@pytest.fixture
def dead() -> Iterator[list[int]]:
    """Return numbers of twenty processes that have ended."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", ""]) for _ in range(20)]
    for process in processes:
        process.wait()
    yield [process.pid for process in processes]


def count(directory: Path, process: int | str, value: float) -> None:
    """Write what a process would have written: a counter, a histogram, a gauge."""
    for kind, metric, name, labels in (
        ("counter", "trifold_requests", "trifold_requests_total", {"model": "stories"}),
        ("histogram", "trifold_step_seconds", "trifold_step_seconds_bucket", {"model": "stories", "le": "0.1"}),
        ("histogram", "trifold_step_seconds", "trifold_step_seconds_bucket", {"model": "stories", "le": "+Inf"}),
        ("histogram", "trifold_step_seconds", "trifold_step_seconds_sum", {"model": "stories"}),
        ("gauge_livesum", "trifold_sequences_running", "trifold_sequences_running", {"model": "stories"}),
    ):
        values = MmapedDict(str(directory / f"{kind}_{process}.db"))
        values.write_value(mmap_key(metric, name, list(labels), list(labels.values()), "help"), value, 0.0)
        values.close()


def page(directory: Path) -> dict[str, float]:
    registry = CollectorRegistry()
    NodeCollector(registry, str(directory))
    return series(generate_latest(registry).decode())


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.db"))


FOLDED = ["counter_0.db", "histogram_0.db"]
LIVING = [f"counter_{ALIVE}.db", f"gauge_livesum_{ALIVE}.db", f"histogram_{ALIVE}.db"]


def test_the_files_of_twenty_dead_processes_become_one_of_a_kind_and_the_sums_stay(
    tmp_path: Path, dead: list[int]
) -> None:
    processes: list[int | str] = [*dead, ALIVE]
    for process in processes:
        count(tmp_path, process, 2)
    folded = page(tmp_path)

    assert files(tmp_path) == sorted(FOLDED + LIVING)
    assert (
        folded
        == page(tmp_path)
        == {
            'requests_total{model="stories"}': 42,
            'step_seconds_bucket{le="0.1",model="stories"}': 42,
            'step_seconds_bucket{le="+Inf",model="stories"}': 84,
            'step_seconds_count{model="stories"}': 84,
            'step_seconds_sum{model="stories"}': 42,
            'sequences_running{model="stories"}': 2,
        }
    )


def test_who_dies_later_is_added(tmp_path: Path, dead: list[int]) -> None:
    for number, process in enumerate(dead, start=1):
        count(tmp_path, process, 1)
        assert page(tmp_path)['requests_total{model="stories"}'] == number

    assert files(tmp_path) == FOLDED


@pytest.mark.parametrize("name", ["{}", "{}-1"])
def test_a_file_of_before_a_restart_is_not_that_of_whoever_has_the_number_now(tmp_path: Path, name: str) -> None:
    count(tmp_path, name.format(os.getpid()), 2)
    seen = page(tmp_path)

    assert seen['requests_total{model="stories"}'] == 2
    assert 'sequences_running{model="stories"}' not in seen


def test_many_who_ask_at_once_see_the_same(tmp_path: Path, dead: list[int]) -> None:
    for process in dead:
        count(tmp_path, process, 1)
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(page, [tmp_path] * 24))

    assert {each['requests_total{model="stories"}'] for each in pages} == {20}


@pytest.mark.parametrize("steps", range(6))
def test_a_folder_that_is_killed_half_way_loses_and_doubles_nothing(
    tmp_path: Path, dead: list[int], monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    for process in dead[:3]:
        count(tmp_path, process, 1)
    left = iter(range(steps))

    class Killed(BaseException):
        pass

    def until_killed(change: object) -> object:
        def changed(*arguments: object, **options: object) -> object:
            if next(left, None) is None:
                raise Killed
            return change(*arguments, **options)  # type: ignore[operator]  # a method of Path

        return changed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", until_killed(Path.replace))
        patched.setattr(Path, "unlink", until_killed(Path.unlink))
        with pytest.raises(Killed):
            fold(tmp_path)

    assert page(tmp_path)['requests_total{model="stories"}'] == 3
    assert files(tmp_path) == FOLDED and not metrics_files._journal(tmp_path).exists()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\1", b"\xff\0\0\0", struct.pack("4i", 64, 0, 40, 0) + b"\xff" * 60),
        struct.pack("2i", 64, 0) + bytes(56),  # a page that never came to the disk
        struct.pack("3i", 32, 0, 4) + b"[1] " + bytes(16),
    ],
)
@pytest.mark.parametrize("name", ["counter_{}.db", "histogram_{}.db", "counter_0.db"])
def test_a_dead_processes_file_that_cannot_be_read_is_removed(
    tmp_path: Path, dead: list[int], content: bytes, name: str
) -> None:
    path = tmp_path / name.format(dead[1])
    path.write_bytes(content)
    assert page(tmp_path) == {} and not path.exists()

    path.write_bytes(content)
    count(tmp_path, dead[0], 1)
    assert page(tmp_path)['requests_total{model="stories"}'] == 1


@pytest.mark.parametrize("content", ["", "{", "\0\0"])
def test_a_journal_that_cannot_be_read_is_removed(tmp_path: Path, dead: list[int], content: str) -> None:
    count(tmp_path, dead[0], 1)
    (tmp_path / "folding.json").write_text(content)

    assert page(tmp_path)['requests_total{model="stories"}'] == 1
    assert not metrics_files._journal(tmp_path).exists()


def test_a_journal_is_read_even_if_nobody_is_dead_any_more(tmp_path: Path, dead: list[int]) -> None:
    count(tmp_path, dead[0], 1)
    (tmp_path / f"counter_{dead[0]}.db").rename(tmp_path / "counter_0.new")
    (tmp_path / "folding.json").write_text(json.dumps({"counter_0.db": []}))

    assert page(tmp_path)['requests_total{model="stories"}'] == 1


def test_on_a_full_disk_counts_are_kept_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    grown = AllocatedDict(str(tmp_path / "counter_1.db"))
    grown.write_value("before", 1.0, 0.0)
    monkeypatch.setattr(metrics_files, "_allocate", full)
    unmade = AllocatedDict(str(tmp_path / "counter_2.db"))
    for number in range(2000):  # more than the file has room for
        for counts in (grown, unmade):
            counts.write_value(f"{number:0100}", float(number), 0.0)
    assert grown.read_value("before") == (1.0, 0.0)
    for counts in (grown, unmade):
        assert counts.read_value(f"{1999:0100}") == (1999.0, 0.0) and counts.read_value("new") == (0.0, 0.0)
        counts.close()

    assert len(grown.without_file) < 2000 < len(unmade.without_file)
    assert files(tmp_path) == ["counter_1.db"]  # of the other there is nothing that a scrape could fail on
    assert "No space left on device" in caplog.text


def test_what_cannot_be_folded_for_lack_of_room_is_read_as_it_is(
    tmp_path: Path, dead: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for process in dead:
        count(tmp_path, process, 1.0)
    with monkeypatch.context() as disk:
        disk.setattr(metrics_files, "_allocate", full)
        assert page(tmp_path)['requests_total{model="stories"}'] == len(dead)

    assert page(tmp_path)['requests_total{model="stories"}'] == len(dead)
    assert files(tmp_path) == FOLDED
