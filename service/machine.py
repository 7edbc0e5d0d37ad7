"""What this process may use of memory, cores and processes, the machine's or its container's."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
MAX_V1 = "memory.limit_in_bytes"


def memory_limit(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the bytes of the tightest limit: of the cgroup and those above it (v2, then v1), or the machine's memory.

    A container mostly sees its own cgroup as the root of the tree; elsewhere the process tells which one is its own.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = [*_upwards(cgroups, own, "", "memory.max"), *_upwards(cgroups / "memory", own, "memory", MAX_V1)]
    return min([machine, *filter(None, map(_limit, files))])


def most_processes(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return how many processes and threads there may be at most: of this user, unless it is root, or the container."""
    files = [*_upwards(cgroups, own, "", "pids.max"), *_upwards(cgroups / "pids", own, "pids", "pids.max")]
    limits = [*filter(None, map(_limit, files))]
    of_user, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.getuid() and of_user != resource.RLIM_INFINITY:
        limits.append(of_user)
    return min(limits, default=sys.maxsize)


def _upwards(root: Path, own: Path, controller: str, name: str) -> list[Path]:
    """Return the files of a name in the root and on the way to this process's cgroup of a controller."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    paths = [path for _, controllers, path in lines if controller in controllers.split(",")]
    folder = root.joinpath(paths[0].strip("/")) if paths else root
    return [above / name for above in (folder, *folder.parents) if above.is_relative_to(root)]


def _limit(path: Path) -> int | None:
    try:
        words = path.read_text().strip()
    except OSError:
        return None
    return int(words) if words.isdigit() else None  # "max" is none


def usable_cores(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the cores this process may use: its affinity, and the tightest quota of its cgroup and those above it.

    Quotas (cgroup v2, and v1) are rounded up.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *_quotas(cgroups, own)]))


def _quotas(cgroups: Path, own: Path) -> Iterator[int]:
    for file in _upwards(cgroups, own, "", "cpu.max"):
        yield from _quota(file)
    for file in _upwards(cgroups / "cpu", own, "cpu", "cpu.cfs_quota_us"):
        yield from _quota(file, file.with_name("cpu.cfs_period_us"))


def _quota(*files: Path) -> Iterator[int]:
    """Yield the cores that time in microseconds a period comes to, unless there is no bound."""
    with suppress(OSError, ValueError):
        quota, period = " ".join(file.read_text() for file in files).split()
        if quota.isdigit():  # neither "max" nor -1
            yield -(-int(quota) // int(period))
