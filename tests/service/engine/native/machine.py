"""What of the machine these tests need."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.engine.native.library import find_compiler

_CPUINFO = Path("/proc/cpuinfo")

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler here")
needs_instructions = pytest.mark.skipif(
    find_compiler() is None or not _CPUINFO.exists() or "avx512_vnni" not in _CPUINFO.read_text(),
    reason="needs a C++ compiler and a processor with AVX-512 VNNI",
)
