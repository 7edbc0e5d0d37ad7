"""Ctrl-C while a run trains: it ends the run between two steps, where a checkpoint leaves nothing out."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NOTED = b"\nstops and saves behind this step; Ctrl-C again stops at once\n"


@dataclass
class Interruption:
    """Whether Ctrl-C was pressed."""

    has_come: bool = False


@contextmanager
def noting_interruption() -> Iterator[Interruption]:
    """Note the first Ctrl-C, for what runs within to end by it soon; a second one raises `KeyboardInterrupt` as ever.

    Only where the first would have raised it, too: in the main thread, and unless somebody else handles or ignores it.
    """
    interruption = Interruption()

    def note(number: int, frame: object) -> None:
        if interruption.has_come:
            raise KeyboardInterrupt
        interruption.has_come = True
        os.write(2, NOTED)  # not by sys.stderr, which the interrupted code may be in the middle of writing to

    is_raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_raised or threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interruption.has_come:  # behind the last look at it
        raise KeyboardInterrupt


@contextmanager
def ending_by(interruption: Interruption) -> Iterator[None]:
    """Let Ctrl-C end what fails by it: a terminal sends it to all processes, as to compilers that a step waits for."""
    try:
        yield
    except Exception:
        if interruption.has_come:
            raise KeyboardInterrupt from None
        raise
