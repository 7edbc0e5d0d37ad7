"""The operators' library: built of its sources where it is first needed, if there is a C++ compiler.

It is kept as Python keeps what it has compiled: beside the sources, and for whoever may not write there in their own
cache. Its name has a digest of the sources, so that no other than theirs is ever loaded. An image has it already
(`python library.py`), and needs no compiler.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fvisibility=hidden", "-fPIC", "-shared")
PATIENCE_S = 120  # for a compiler, which takes two or three


class NoLibrary(RuntimeError):
    """The operators cannot be had here; says why."""


def find_library(load: Callable[[Path], object]) -> Path:
    """Return the library's file, built now if it is not there, once `load` has taken it; raises `NoLibrary`."""
    path = next(filter(Path.exists, places()), None) or build()
    try:
        load(path)
    except Exception as error:  # ONNX Runtime's own kinds, as where the processor lacks the instructions
        raise NoLibrary(str(error)) from error
    return path


def places() -> list[Path]:
    """Return where the library may lie, the best place first."""
    digest = hashlib.sha256(repr((FLAGS, platform.system(), platform.machine())).encode())
    for source in sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h"), *FOLDER.glob("onnxruntime/*.h")]):
        digest.update(source.read_bytes())
    name = f"operators-{digest.hexdigest()[:16]}.so"
    return [FOLDER / "__pycache__" / name, Path("~/.cache/trifold").expanduser() / name]


def build() -> Path:
    """Build the library in the first place that may be written to; raises `NoLibrary`.

    Processes that build at the same time do it side by side, and the last one's file stays.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NoLibrary("they are not built, as there is no C++ compiler (c++, g++ or clang++)")
    reason = ""
    for place in places():
        partial = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial.touch()
        except OSError as error:
            reason = f"they are not built, as nothing can be written: {error}"
            continue
        try:
            _compile(compiler, partial)
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)
        return place
    raise NoLibrary(reason)


def _compile(compiler: str, target: Path) -> None:
    command = [compiler, *FLAGS, *map(str, sorted(FOLDER.glob("*.cpp"))), "-o", str(target)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)  # noqa: S603  # our own words
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line] or ["it says nothing"]
        raise NoLibrary(f"{compiler} cannot build them: {lines[0]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLibrary(f"{compiler} cannot build them: {error}") from error


if __name__ == "__main__":
    print(build())
