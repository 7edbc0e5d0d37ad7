from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

from service.machine import memory_limit, most_processes, usable_cores

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def limit(tmp_path: Path, files: dict[str, str], own: str = "0::/\n") -> int:
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    (tmp_path / "own").write_text(own)
    return memory_limit(tmp_path, tmp_path / "own")


def test_a_container_of_version_2_has_what_its_cgroup_may_use(tmp_path: Path) -> None:
    assert limit(tmp_path, {"memory.max": "1000000"}) == 1_000_000


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {"a/memory.max": "3000000", "a/b/memory.max": "max", "other/memory.max": "5"}

    assert limit(tmp_path, files, "0::/a/b\n") == 3_000_000


def test_a_container_of_version_1_has_what_its_cgroup_may_use(tmp_path: Path) -> None:
    files = {"memory/pod/memory.limit_in_bytes": "2000000", "memory/memory.limit_in_bytes": "9223372036854771712"}

    assert limit(tmp_path, files, "3:cpu:/x\n5:memory:/pod\n") == 2_000_000


def test_a_machine_without_a_limit_has_its_own_memory(tmp_path: Path) -> None:
    assert limit(tmp_path, {"memory.max": "max"}) == MACHINE
    assert memory_limit(tmp_path / "none", tmp_path / "none") == MACHINE


@pytest.mark.parametrize(
    ("files", "own"),
    [
        ({"cpu.max": "max 100000", "a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b\n"),
        ({"cpu/pod/cpu.cfs_quota_us": "20000", "cpu/pod/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/pod\n"),
    ],
    ids=["version 2", "version 1"],
)
def test_the_tightest_quota_on_the_way_up_bounds_the_cores(tmp_path: Path, files: dict[str, str], own: str) -> None:
    free = usable_cores(tmp_path, tmp_path / "own")
    limit(tmp_path, files, own)

    assert usable_cores(tmp_path, tmp_path / "own") == 1 <= free
    limit(
        tmp_path, {name: "-1" if "cfs_quota" in name else "max 100000" for name in files if "period" not in name}, own
    )
    assert usable_cores(tmp_path, tmp_path / "own") == free


def test_processes_are_bounded_by_the_container_and_for_others_than_root_by_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def most(uid: int, soft: int, own: str) -> int:
        monkeypatch.setattr(os, "getuid", lambda: uid)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, 9999))
        (tmp_path / "own").write_text(own)
        return most_processes(tmp_path, tmp_path / "own")

    for file, content in (("v2/pids.max", "300"), ("pids/v1/pids.max", "200"), ("free/pids.max", "max")):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(f"{content}\n")

    assert [most(0, 400, own) for own in ("0::/v2\n", "8:pids:/v1\n", "0::/free\n")] == [300, 200, sys.maxsize]
    assert [most(1000, soft, "0::/v2\n") for soft in (400, 250, resource.RLIM_INFINITY)] == [300, 250, 300]
