from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from service.signals import CLEANING_UP_S, Stop, UntilReady, ending_signals

SIGNALLED_WHEN_FREED = """
import os, signal
from service.signals import UntilReady

class Freed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(10):
            pass

with UntilReady().heeded():
    Freed()
    print("goes on")
print("is ready")
"""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_terminal_that_is_closed_ends_a_program_too_unless_that_is_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert ending_signals() == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    assert ending_signals() == [signal.SIGINT, signal.SIGTERM]


def test_a_signal_ends_a_start_also_where_its_exception_is_lost() -> None:
    with UntilReady().heeded():
        pass  # without a signal it goes on

    command = [sys.executable, "-c", SIGNALLED_WHEN_FREED]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr

    with pytest.raises(SystemExit) as ended, UntilReady().heeded():
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        sys.exit("as Ray does in place of it")
    assert ended.value.code == 0


@pytest.mark.parametrize("fails", [False, True])
def test_what_holds_signals_is_finished_before_one_ends_the_program(fails: bool) -> None:
    signals, finished = UntilReady(), False
    with pytest.raises(SystemExit), signals.held():
        signal.raise_signal(signal.SIGINT)
        finished = True
        if fails:
            raise OSError("as something was told to end too")
    assert finished


def test_impatient_signals_do_not_break_off_what_cleans_up_after_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("service.signals.time.monotonic", lambda: now)
    signals = UntilReady()
    with pytest.raises(SystemExit), signals.heeded():
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(SystemExit):  # at once, as nothing cleans up after the first, which was lost
            signal.raise_signal(signal.SIGINT)
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            try:
                raise OSError("as something fails that is cleaned up")
            except OSError:
                signal.raise_signal(signal.SIGINT)
            now += CLEANING_UP_S  # it hangs
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGINT)


AT_THE_END = """
import atexit, signal, time
from service.signals import UntilReady

def clean():
    signal.raise_signal(signal.SIGINT)
    print("cleaned")

atexit.register(clean)
with UntilReady().heeded():
    signal.raise_signal(signal.SIGINT)
"""


def test_impatient_signals_do_not_break_off_what_python_does_at_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", AT_THE_END], check=False, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, "cleaned\n", "")


def test_impatient_signals_do_not_break_off_what_cleans_up_after_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("service.signals.time.monotonic", lambda: now)
    stop = Stop()
    signal.raise_signal(signal.SIGINT)
    assert stop.wait(0)
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGINT)
    for _ in range(3):
        signal.raise_signal(signal.SIGINT)

    now += CLEANING_UP_S
    stop.clean_up()  # as when it shuts down by itself
    signal.raise_signal(signal.SIGINT)
    now += CLEANING_UP_S  # it hangs
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGINT)
