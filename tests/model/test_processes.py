from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import is_gone

ROOT = Path(__file__).parents[2]
WORKING = """
import os
import signal
import sys
import time

sys.path.insert(0, sys.argv[1])
from model.commands.app import leave
from model.commands.models_file import _apart


def work():
    print(os.getpid(), flush=True)
    time.sleep(300)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has let what it runs aside ignore
    _apart(work)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_done_apart_ends_at_once_with_the_process_that_asked_for_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    script = tmp_path / "working.py"
    script.write_text(WORKING)
    command = [sys.executable, str(script), str(ROOT)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            process.send_signal(number)
            process.wait(timeout=60)
        finally:
            process.kill()

    assert process.returncode == (128 + number if number == signal.SIGTERM else -number)
    assert is_gone(worker)
