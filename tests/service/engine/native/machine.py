"""What of the machine these tests need."""

from __future__ import annotations

import pytest

from model.package.processor import instructions
from service.engine.native.library import find_compilers

_INSTRUCTIONS = instructions()

needs_compiler = pytest.mark.skipif(not find_compilers(), reason="there is no C++ compiler here")
needs_instructions = pytest.mark.skipif(
    not find_compilers() or not ({"avx2", "fma", "f16c"} <= _INSTRUCTIONS or "asimddp" in _INSTRUCTIONS),
    reason="needs a C++ compiler, and a processor with AVX2 or NEON's dot products",
)
needs_avx512 = pytest.mark.skipif(
    not find_compilers() or "avx512_vnni" not in _INSTRUCTIONS,
    reason="needs a C++ compiler and a processor with AVX-512 VNNI",
)
