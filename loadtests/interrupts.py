"""Ending a load test from outside."""

from __future__ import annotations

import signal
import sys


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and a terminal that closes end this program by an exception: what it started is then ended, too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` wants it
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
