"""The signals by which a program is asked to end, and what they do to one that starts, and to one that serves."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a program; that of a terminal that is closed unless somebody had it ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as by nohup
    return [signal.SIGINT, signal.SIGTERM, *([] if is_ignored else [signal.SIGHUP])]


class UntilReady:
    """Lets signals end a program that starts, with status 0; whoever has started something cleans it up.

    Handlers end it by an exception. Python drops exceptions that are raised in a callback, as after a fork or when an
    object is freed, and libraries catch some or raise others in their place; so a signal is noted too.
    """

    def __init__(self) -> None:
        self._came = False
        self._is_held = False
        for number in ending_signals():
            signal.signal(number, self._end)

    def _end(self, _number: int, _frame: object) -> None:
        self._came = True
        if not self._is_held:
            sys.exit(0)

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """End the program behind what runs within if a signal has come by then, whatever became of its exception."""
        try:
            yield
        finally:
            if self._came:
                sys.exit(0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let what runs within come to its end, or fail, before a signal ends the program."""
        self._is_held = True
        with self.heeded():
            try:
                yield
            finally:
                self._is_held = False


def stop_on_signals() -> threading.Event:
    """Return what the first signal sets that is to end the service; a second one exits."""
    stop = threading.Event()

    def stop_or_exit(number: int, _frame: object) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        stop.set()

    for number in ending_signals():
        signal.signal(number, stop_or_exit)
    return stop
