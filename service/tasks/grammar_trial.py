"""Compile a grammar in a process of its own, whose end hurts nobody: `python -P grammar_trial.py` with JSON on stdin.

llguidance's limits do not hold everywhere: some grammars crash the process that compiles them (chains of thousands of
rules), and some take minutes (many patterns of one string). This file imports nothing of ours, so that it starts soon.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

SECONDS = 1  # of the processor's time; usual grammars take milliseconds
PATIENCE_S = 15.0  # on a machine where all cores are busy
NICENESS = 5  # a third of the time that the service's own threads have, where both want it
STACK_BYTES = 4 * 2**20  # half of what the threads of the service have
MEMORY_BYTES = 2 * 2**30
SHOWN = 200  # characters of what a process said at its end
FIRST_TO_DIE = "1000"  # of the processes where memory is short
# How a trial ends that was the grammar's own doing: out of time, of stack, of memory, or by an error of the compiler's.
ITS_OWN = 3  # this program's status
OF_THE_GRAMMAR = frozenset({ITS_OWN, -signal.SIGXCPU, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL})
TOO_MUCH = f"the grammar is too complex: compiling it took more than {SECONDS} s, or too much memory"


class NotTried(Exception):
    """The trial did not come to its end, for a reason that is not the grammar's: another time it may."""


def complaint_about(lark: str, limits: Mapping[str, object]) -> str | None:
    """Return what is wrong with a grammar; None if it can be compiled and begun. Blocks, for seconds at most.

    Raises `NotTried` where the machine was too busy, or had no memory or processes left.
    """
    asked = json.dumps({"lark": lark, "limits": limits})
    command = [sys.executable, "-P", __file__]
    try:
        found = subprocess.run(  # noqa: S603  # ourselves
            command, input=asked, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, check=False
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise NotTried(str(error)) from None
    if found.returncode in OF_THE_GRAMMAR:
        return TOO_MUCH
    if found.returncode:  # SIGKILL among others, as its own limits end it otherwise
        raise NotTried(f"its process ended with status {found.returncode}: {found.stderr[-SHOWN:]}")
    complaint: str | None = json.loads(found.stdout)
    return complaint


def main() -> None:
    """Answer with the complaint as JSON."""
    die_first()
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))  # beyond the second the kernel would send SIGKILL
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(STACK_BYTES)
    complaints: list[str | None] = []
    thread = threading.Thread(target=lambda asked: complaints.append(_tried(asked)), args=(json.load(sys.stdin),))
    thread.start()
    thread.join()
    if not complaints:
        sys.exit(ITS_OWN)
    print(json.dumps(complaints[0]))


def die_first() -> None:
    """Let the kernel end this process rather than the service, whose memory it shares the limit of."""
    with suppress(OSError):  # on Linux alone
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_DIE)


def _tried(asked: Mapping[str, object]) -> str | None:
    limits = LLParserLimits(**asked["limits"])  # type: ignore[arg-type]  # what we wrote ourselves
    matcher = LLMatcher(LLTokenizer("byte"), str(asked["lark"]), log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # some show only here what they cost, or that nothing can begin
    return matcher.get_error() if matcher.is_error() else None


if __name__ == "__main__":
    main()
