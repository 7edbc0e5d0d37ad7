"""Where training computes in bfloat16: on what multiplies it by itself. Elsewhere it would take many times as long."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from model.package.processor import CPUINFO, instructions

# Linux's names for products of bfloat16 on x86, and on Arm.
NATIVE = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def multiplies_halves(cpuinfo: Path = CPUINFO) -> bool:
    """Tell whether the processor has instructions for products of bfloat16."""
    return not instructions(cpuinfo).isdisjoint(NATIVE)


@cache
def computes_in_halves(device: str) -> bool:
    """Tell whether training computes in bfloat16 on a kind of device."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return multiplies_halves()


def autocast(device: torch.device) -> torch.autocast:
    """Return what makes a device compute in bfloat16, if that is faster there.

    It has float32's range, so no loss scaling is needed.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=computes_in_halves(device.type))
