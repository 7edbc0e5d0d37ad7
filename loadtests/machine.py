"""What a figure was measured on, and of what: without it a report is worth nothing a month later."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def about() -> dict[str, Any]:
    """Return the time, the commit of this checkout, and the machine that the load runs on."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "processor": processor(),
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
