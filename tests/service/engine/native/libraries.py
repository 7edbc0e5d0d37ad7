"""Libraries of our operators that are built otherwise than for this processor, and graphs that run with them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from service.engine import session as sessions
from service.engine.native.library import compile_library, find_compilers
from service.engine.native.vocabulary import OwnPasses
from service.engine.providers import native_library
from service.engine.session import Session, SessionOptions


def built(folder: Path, *further: str) -> Path:
    """Build a library with further options of the compiler's."""
    path = folder / "operators.so"
    compiler = next(iter(find_compilers()), None)
    assert compiler is not None
    compile_library(compiler, path, *further)
    return path


def opened(path: Path, library: Path | None, threads: int = 1, *, half_cache: bool = False) -> Session:
    """Open a graph with our operators of that library or, without one, with ONNX Runtime's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "native_library", lambda: library)
        session = Session(path, SessionOptions(threads, native=library is not None, half_cache=half_cache))
    assert (session._native is None) == (library is None)
    return session


@cache
def own_passes() -> OwnPasses:
    """Return the passes over a vocabulary by our own operators."""
    library = native_library()
    if library is None:
        pytest.skip("our own operators cannot be had here: there is no C++ compiler, or this processor is too old")
    return OwnPasses(library, SessionOptions(2))
