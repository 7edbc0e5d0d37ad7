"""What a figure was measured on, and of what: without it a report is worth nothing a month later."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# Instructions that decide how fast small integers and halves are multiplied.
INSTRUCTIONS = (
    *("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimddp", "i8mm", "bf16", "sve"),
)
LIBRARIES = ("onnxruntime", "torch", "transformers", "ctranslate2", "openvino", "numpy")


def about() -> dict[str, Any]:
    """Return the time, the commit of this checkout, the machine, and the libraries that answers come from."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "processor": processor(),
        "instructions": instructions(),
        "libraries": libraries(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def commit() -> str | None:
    """Return the commit of this checkout, with a plus if files have changed since; None where there is no git."""
    try:
        head = _git("rev-parse", "HEAD")
        return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def processor() -> str:
    """Return the processor's name and how many of its cores there are."""
    names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return f"{names[0] if names else 'a processor without a name'}, {os.cpu_count()} cores"


def instructions() -> list[str]:
    """Return which of the instructions that matter the processor has; none where what reads packages is not here."""
    try:
        from model.package.processor import instructions as of_processor
    except ImportError:  # as in Locust's image, which has the load test alone
        return []
    known = of_processor()
    return [name for name in INSTRUCTIONS if name in known]


def multiplies_bfloat16() -> bool:
    """Whether the processor has an instruction for products of bfloat16."""
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(instructions())


def libraries() -> dict[str, str]:
    """Return the versions of those that are installed."""
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


class Steal:
    """How much of the cores' time has gone to others of the host since this was made, as the system counts it."""

    def __init__(self) -> None:
        self._before = _times()

    def share(self) -> float:
        """Return the share of all cores' time, 0 to 1."""
        (stolen, total), (stolen_before, total_before) = _times(), self._before
        return (stolen - stolen_before) / max(1, total - total_before)


def _times() -> tuple[int, int]:
    """Return the time stolen and all time, in ticks: the eighth number of `cpu` is the stolen (proc(5))."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return numbers[7], sum(numbers)
