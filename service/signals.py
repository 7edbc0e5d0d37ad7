"""The signals by which a program is asked to end, and what they do to one that starts, and to one that serves."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

CLEANING_UP_S = 10.0  # for which further signals, of whoever is impatient, do not break off what cleans up


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a program; that of a terminal that is closed unless somebody had it ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as by nohup
    return [signal.SIGINT, signal.SIGTERM, *([] if is_ignored else [signal.SIGHUP])]


class UntilReady:
    """Lets signals end a program that starts, with status 0; whoever has started something cleans it up.

    Handlers end it by an exception. Python drops exceptions that are raised in a callback, as after a fork or when an
    object is freed, and libraries catch some or raise others in their place; so a signal is noted too. While the
    exception is on its way, and behind it, others that come soon are not heeded: they would end what cleans up.
    """

    def __init__(self) -> None:
        self._came: float | None = None  # when, by the monotonic clock
        self._raised: SystemExit | None = None
        self._has_left = False  # what was heeded, for whatever Python still does at its end
        self._is_held = False
        for number in ending_signals():
            signal.signal(number, self._end)

    def _end(self, _number: int, _frame: object) -> None:
        if _is_soon_after(self._came) and (self._has_left or self._is_on_its_way()):
            return
        self._came = time.monotonic()
        if not self._is_held:
            self._leave()

    def _leave(self) -> NoReturn:
        self._raised = SystemExit(0)
        raise self._raised

    def _is_on_its_way(self) -> bool:
        """Tell whether the exception, or another in its place, is what the interrupted code cleans up after."""
        error = sys.exc_info()[1]
        while error is not None and error is not self._raised:
            error = error.__context__
        return error is not None

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """End the program behind what runs within if a signal has come by then, whatever became of its exception."""
        try:
            yield
        finally:
            if self._came is not None:
                self._has_left = True
                self._leave()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let what runs within come to its end, or fail, before a signal ends the program."""
        self._is_held = True
        with self.heeded():
            try:
                yield
            finally:
                self._is_held = False


class Stop:
    """Lets the first signal ask a service to stop, and a second one end it; none breaks off what cleans up."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self._cleans_up: float | None = None  # since when, by the monotonic clock
        for number in ending_signals():
            signal.signal(number, self._stop_or_exit)

    def _stop_or_exit(self, number: int, _frame: object) -> None:
        if not self._came.is_set():
            self._came.set()
        elif not _is_soon_after(self._cleans_up):
            self.clean_up()
            sys.exit(128 + number)

    def wait(self, seconds: float) -> bool:
        """Wait for the first signal, for so long at most; returns whether it has come."""
        return self._came.wait(seconds)

    def clean_up(self) -> None:
        """Heed no signal for some seconds: what was started is being ended, and half of that is worse than none."""
        self._cleans_up = time.monotonic()


def _is_soon_after(moment: float | None) -> bool:
    return moment is not None and time.monotonic() - moment < CLEANING_UP_S
