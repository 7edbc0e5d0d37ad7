"""What a process itself tells of its memory, and of the versions that it runs."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from service import __version__


class _Mallinfo2(ctypes.Structure):
    """glibc's own (mallinfo(3)): all are numbers of bytes but `ordblks`, `smblks` and `hblks`."""

    _names = "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


@cache
def _mallinfo() -> Callable[[], _Mallinfo2] | None:
    """Return glibc's function, which came with 2.33; other C libraries have none."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is not None:
        function.restype = _Mallinfo2
    return function


def heap_bytes() -> int:
    """Return what is allocated with malloc, 0 where the C library does not tell.

    ONNX Runtime's arenas are, and its weights; it has no count of its own in Python. The KV cache is not.
    """
    function = _mallinfo()
    if function is None:
        return 0
    told = function()
    used, mapped = told.uordblks, told.hblkhd
    return int(used + mapped)


def resident_bytes() -> int:
    """Return this process's memory in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def build_info() -> dict[str, str]:
    """Return the versions of what runs, "unknown" for what is not installed as a package."""
    runtime = _version("onnxruntime") or _version("onnxruntime-gpu")
    return {
        "version": __version__,
        "python": platform.python_version(),
        "onnxruntime": runtime or "unknown",
        "ray": _version("ray") or "unknown",
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
