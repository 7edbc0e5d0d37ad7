"""What the processor can do."""

from __future__ import annotations

import platform
import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def instructions(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Return the names that Linux has for the processor's instructions; none where it tells nothing."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.M)
    return frozenset(found[1].split() if found else ())


def sums_up_in_16_bits(cpuinfo: Path = CPUINFO) -> bool:
    """Tell whether the processor's one instruction for products of 8-bit integers adds two up in 16 bits: too few.

    That of x86 before VNNI, which came with AVX-512 and, later, with AVX2's registers.
    """
    is_x86 = platform.machine() in {"x86_64", "AMD64"}
    return is_x86 and instructions(cpuinfo).isdisjoint({"avx512_vnni", "avx_vnni"})
