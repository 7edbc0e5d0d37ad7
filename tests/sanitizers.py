"""A plugin of pytest: our own operators are built with AddressSanitizer and UndefinedBehaviorSanitizer.

`make sanitize` names it (`-p tests.sanitizers`) and loads the sanitizers' libraries into Python. A read or write beside
an array, or what C++ does not define, then ends the run with a report, also where the answer would be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime

from service.engine.native import library

SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
SHRINKING = "memory.enable_memory_arena_shrinkage"


class WithoutArena(onnxruntime.SessionOptions):  # type: ignore[misc]  # it has no types
    """Every array is allocated by itself, so that there are limits to overstep."""

    def __init__(self) -> None:
        super().__init__()
        self.enable_cpu_mem_arena = False


def pytest_configure() -> None:
    """Build and open the operators otherwise, in this process."""
    library.FLAGS = (*(flag for flag in library.FLAGS if flag != "-O3"), *SANITIZED)  # type: ignore[assignment]  # more
    library.PATIENCE_S = 900
    onnxruntime.SessionOptions = WithoutArena
    add: Callable[..., None] = onnxruntime.RunOptions.add_run_config_entry

    def add_but_shrinking(options: Any, key: str, value: str) -> None:
        if key != SHRINKING:  # of the arena that is not there
            add(options, key, value)

    onnxruntime.RunOptions.add_run_config_entry = add_but_shrinking
