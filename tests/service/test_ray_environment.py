from __future__ import annotations

import os
import subprocess
import sys

import pytest

from service.ray_environment import MEMORY

HELD_AFTER_A_BURST = """
import ctypes, threading
from ctypes import c_size_t, c_void_p
import psutil
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = c_void_p, [c_size_t], [c_void_p]

def burst():
    for size in (24 * 2**20, 100_000):  # one large block, after whose end glibc keeps blocks of its size
        blocks = [libc.malloc(size) for _ in range(2**25 // size + 1)]
        for block in blocks:
            ctypes.memset(block, 1, size)
        for block in blocks:
            libc.free(block)
    libc.malloc_trim(0)

before = psutil.Process().memory_info().rss
for _ in range(4):
    thread = threading.Thread(target=burst)
    thread.start()
    thread.join()
print((psutil.Process().memory_info().rss - before) // 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_what_a_thread_has_freed_can_be_given_back() -> None:
    held = {
        name: int(
            subprocess.run(
                [sys.executable, "-c", HELD_AFTER_A_BURST],
                env={**{k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}, **environment},
                capture_output=True,
                check=True,
            ).stdout
        )
        for name, environment in (("as set", MEMORY), ("by default", {}))
    }

    assert held["as set"] < 4 < held["by default"]
