"""The signals by which a program is asked to end."""

from __future__ import annotations

import signal


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a program; that of a terminal that is closed unless somebody had it ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as by nohup
    return [signal.SIGINT, signal.SIGTERM, *([] if is_ignored else [signal.SIGHUP])]
