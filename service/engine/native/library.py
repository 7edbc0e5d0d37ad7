"""The operators' library: built of its sources where it is first needed, if there is a C++ compiler.

It is kept as Python keeps what it has compiled: beside the sources, and for whoever may not write there in their own
cache. Its name has a digest of the sources, so that one of another version is never taken for it. An image has it
already (`python library.py`), and needs no compiler.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
# Nothing is contracted: a product and a sum that become one instruction are rounded once less.
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-fPIC", "-shared")
# As compilers, assemblers and linkers tell of a place that takes no files.
NO_SPACE = ("No space left on device", "Disk quota exceeded", "Read-only file system", "Input/output error")
# What tells that a compiler has failed, and not that it does not know the sources: another time it will not.
FAILURES = (*NO_SPACE, "Killed", "emory exhausted", "ut of memory", "Cannot allocate memory")
BUILDING = "building-"  # how the names of folders begin in which one is built
COARSE_S = 0.1  # by which a file's time may be behind
PATIENCE_S = 120  # for a compiler, which takes ten
# What compilers and assemblers learned last: both are known from GCC 11, clang 12 and binutils 2.36 on.
WITHOUT_AVX_VNNI, WITHOUT_TILES = "-DTRIFOLD_WITHOUT_AVX_VNNI", "-DTRIFOLD_WITHOUT_TILES"
WITHOUT_MATRIX_PRODUCTS = "-DTRIFOLD_WITHOUT_MATRIX_PRODUCTS"  # of 64-bit Arm, which GCC 10 knows


class NoLibrary(RuntimeError):
    """The operators cannot be had here; says why."""


class NotCompiled(NoLibrary):
    """The compiler has refused the sources."""


class CompilerFailed(NoLibrary):
    """The compiler has not come to an end of the sources, as there was no memory or no room for it."""


def find_library(load: Callable[[Path], object]) -> Path:
    """Return the library's file, built now if it is nowhere, once `load` has taken it; raises `NoLibrary`."""
    failures = []
    for path in _found() or [build()]:
        try:
            load(path)
        except Exception as error:  # ONNX Runtime's own kinds, as where the processor lacks the instructions
            failures.append(f"{path}: {error}")
        else:
            return path
    raise NoLibrary("; ".join(failures))


def _opens(library: Path) -> bool:
    """Tell whether a library can be loaded at all: it may be another system's, or have lost its end in a crash."""
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True


def instructions_of(library: Path) -> str:
    """Return the names of the processor's instructions that a library's operators use."""
    function = ctypes.CDLL(str(library)).TrifoldInstructions
    function.restype = ctypes.c_char_p
    names: bytes = function()
    return names.decode()


def places() -> list[Path]:
    """Return where the library may lie, the best place first."""
    digest = hashlib.sha256(repr((FLAGS, platform.system(), platform.machine())).encode())
    for source in sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h"), *FOLDER.glob("onnxruntime/*.h")]):
        digest.update(source.read_bytes())
    name = f"operators-{digest.hexdigest()[:16]}.so"
    folders = [FOLDER / "__pycache__"]
    with suppress(RuntimeError):  # a user who has no home
        folders.append(Path("~/.cache/trifold").expanduser())
    return [folder / name for folder in folders]


def _kept() -> list[Path]:
    """Return where a library may have been kept: a whole one, or what the compiler that there is knows of one.

    A newer compiler builds anew. Where there is none, as in an image, any that was built will do.
    """
    whole, compilers = places(), find_compilers()
    if not compilers:
        return [*whole, *(found for place in whole for found in sorted(place.parent.glob(f"{place.stem}-*.so")))]
    return [*whole, *(_in_part(place, compiler) for place in whole for compiler in compilers)]


def _found() -> list[Path]:
    """Return the libraries that were kept, are ours and can be loaded, the best first."""
    return [place for place in _kept() if _is_ours(place) and _is_ours(place.parent) and _opens(place)]


def _in_part(place: Path, compiler: str) -> Path:
    """Return the place of a library without what a compiler does not know; another version of it has another."""
    status = Path(compiler).resolve().stat()
    digest = hashlib.sha256(repr((compiler, status.st_size, status.st_mtime_ns)).encode())
    return place.with_name(f"{place.stem}-{digest.hexdigest()[:8]}.so")


def build() -> Path:
    """Build the library in the first place that may be written to; raises `NoLibrary`.

    Of processes that need it at the same time one builds, and the others wait for it.
    """
    if platform.machine() not in {"x86_64", "AMD64", "aarch64"}:
        raise NoLibrary("they are for x86-64 and 64-bit Arm processors alone")
    compilers = find_compilers()
    if not compilers:
        raise NoLibrary("they are not built, as there is no C++ compiler (c++, g++ or clang++)")
    reason, began = "", time.time()
    for place in places():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if not _is_ours(place.parent):
                reason = f"they are not built, as {place.parent} is another user's, or may be written by all"
                continue
            with _alone_in(place.parent) as has_waited:
                if found := _found():  # another process has built it meanwhile
                    return found[0]
                return _built_unless_refused(place, compilers, waited_since=began if has_waited else None)
        except CompilerFailed as error:
            if not any(words in str(error) for words in NO_SPACE):  # which there may be in another place
                raise
            reason = str(error)
        except OSError as error:
            reason = f"they are not built, as nothing can be written: {error}"
    raise NoLibrary(reason)


@contextmanager
def _alone_in(folder: Path) -> Iterator[bool]:
    """Let no other process build in a folder meanwhile, and remove what killed ones have left there for minutes.

    Yields whether another one was waited for.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        has_waited = False
        with suppress(OSError):  # of disks without locks: they build side by side, and the last one's file stays
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(opened, fcntl.LOCK_EX)
                has_waited = True
        for rest in folder.glob(f"{BUILDING}*/"):
            with suppress(OSError):
                if rest.stat().st_mtime < time.time() - 4 * PATIENCE_S:
                    shutil.rmtree(rest)
        yield has_waited
    finally:
        os.close(opened)


def _built_unless_refused(place: Path, compilers: Sequence[str], *, waited_since: float | None) -> Path:
    """Build the library, unless the process that was waited for could not; raises `NoLibrary`, `OSError`."""
    refused = place.with_name(f"{BUILDING}{place.stem}.refused")
    if waited_since is not None and _is_ours(refused) and refused.stat().st_mtime > waited_since - COARSE_S:
        raise NoLibrary(refused.read_text(encoding="utf-8"))
    try:
        return _built(place, compilers)
    except NoLibrary as error:
        with suppress(OSError):
            refused.write_text(str(error), encoding="utf-8")
        raise


def _built(place: Path, compilers: Sequence[str]) -> Path:
    """Build the library by the first compiler that can, and return its place; raises `NoLibrary`, `OSError`."""
    with TemporaryDirectory(dir=place.parent, prefix=BUILDING) as folder:
        built = Path(folder) / place.name
        for compiler in compilers:
            try:
                is_whole = _compile_what_is_known(compiler, built)
            except NotCompiled:
                if compiler == compilers[-1]:
                    raise
            else:
                break
        built.chmod(0o755)  # whatever others may do with files of ours otherwise
        with built.open("rb") as file:
            os.fsync(file)  # or the name could outlast a crash, and not the content
        return built.replace(place if is_whole else _in_part(place, compiler))


def _is_ours(path: Path) -> bool:
    """Tell whether something is there that nobody else could have put there: the library will run as this user."""
    try:
        status = path.stat()
    except OSError:
        return False
    others = (
        stat.S_IWOTH if stat.S_ISDIR(status.st_mode) else stat.S_IWOTH | stat.S_IWGRP
    )  # a folder's files have owners
    return status.st_uid in {0, os.geteuid()} and not status.st_mode & others


def find_compilers() -> list[str]:
    """Return the C++ compilers that there are, each once: the first may be one without its parts, or too old."""
    found: dict[str, str] = {}
    for path in filter(None, map(shutil.which, COMPILERS)):
        found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _compile_what_is_known(compiler: str, target: Path) -> bool:
    """Compile all, or all but what this compiler or its assembler does not know; returns whether it is all.

    Raises `NoLibrary`.
    """
    is_arm = platform.machine() == "aarch64"
    less = [(WITHOUT_MATRIX_PRODUCTS,)] if is_arm else [(WITHOUT_AVX_VNNI,), (WITHOUT_AVX_VNNI, WITHOUT_TILES)]
    for further in ((), *less[:-1]):
        with suppress(NotCompiled):
            compile_library(compiler, target, *further)
            return not further
    compile_library(compiler, target, *less[-1])
    return False


def compile_library(compiler: str, target: Path, *further: str) -> None:
    """Compile the sources into a file, with further options; raises `NoLibrary`."""
    sources = sorted(FOLDER.glob("*.cpp"))
    command = ["env", "LC_ALL=C", compiler, *FLAGS, *further, *map(str, sources), "-o", str(target)]  # English messages
    # A session of its own: a compiler has children, which would go on beside what is served.
    process = subprocess.Popen(  # noqa: S603  # our own words
        command,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",  # in the names of files there may be anything
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=PATIENCE_S)
    except BaseException as error:  # Ctrl-C, too, of which another session hears nothing
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise NoLibrary(f"{compiler} cannot build them: {error}") from error
        raise
    if process.returncode:
        failures = [line for line in said.splitlines() if any(words in line for words in FAILURES)]
        if failures or process.returncode < 0:
            raise CompilerFailed(
                f"{compiler} could not build them: {(failures or [f'status {process.returncode}'])[0]}"
            )
        lines = [line for line in said.splitlines() if "error" in line] or [said.strip()[:200]]
        raise NotCompiled(f"{compiler} cannot build them: {lines[0]}")


if __name__ == "__main__":
    print(build())
