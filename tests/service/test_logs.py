from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from service.logs import LOGGERS, configure_logs, take_over

ROOT = Path(__file__).parent.parent.parent
SAID = "logging.getLogger('trifold').info('said', extra={'model': 'stories'})"
IMPORTS = (
    "import logging, subprocess, sys; from pathlib import Path; from service.logs import configure_logs, own_stderr"
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    logging.raiseExceptions = True
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)


def test_lines_of_other_processes_come_out_where_the_first_one_writes() -> None:
    replica = f"{IMPORTS}; configure_logs(Path(sys.argv[1])); {SAID}"
    first = (
        f"{IMPORTS}; subprocess.run([sys.executable, '-c', {replica!r}, str(own_stderr())], stderr=subprocess.DEVNULL)"
    )
    done = subprocess.run([sys.executable, "-c", first], cwd=ROOT, capture_output=True, text=True, check=True)

    (line,) = map(json.loads, done.stderr.splitlines())
    assert (line["event"], line["model"], line["logger"]) == ("said", "stories", "trifold")


def test_where_others_cannot_open_stderr_it_is_said_and_theirs_stays_where_it_is() -> None:
    ours, theirs = socket.socketpair()  # as systemd's journal
    with ours, theirs:
        first = f"{IMPORTS}; configure_logs(None); print(own_stderr())"
        command = [sys.executable, "-c", first]
        done = subprocess.run(command, cwd=ROOT, stderr=theirs.fileno(), stdout=subprocess.PIPE, check=True)
        assert done.stdout == b"None\n"
        assert "TRIFOLD_LOG_TO names a file" in json.loads(ours.recv(65536))["event"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_children_find_streams_where_this_process_was_started_with_closed_ones(tmp_path: Path) -> None:
    child = (
        "import os, sys; from pathlib import Path; "
        "Path(sys.argv[1]).write_text(' '.join(os.readlink(f'/proc/self/fd/{number}') for number in range(3)))"
    )
    first = (
        "import subprocess, sys; from service.logs import open_streams; open_streams(); "
        f"subprocess.run([sys.executable, '-c', {child!r}, sys.argv[1]], check=True)"
    )
    closed = ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh"]
    subprocess.run([*closed, sys.executable, "-c", first, str(tmp_path / "seen")], cwd=ROOT, check=True)

    assert (tmp_path / "seen").read_text() == "/dev/null /dev/null /dev/null"


def test_nothing_is_written_to_a_file_that_has_got_the_number_of_a_closed_stderr(tmp_path: Path) -> None:
    first = (
        "import os, sys; from service.logs import open_streams; "
        "other = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); "
        "open_streams(); print(other); sys.stderr.write('said'); sys.stderr.flush()"
    )
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", first, str(tmp_path / "other")]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)

    assert done.stdout == b"2\n" and (tmp_path / "other").read_bytes() == b""


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    first = f"{IMPORTS}; configure_logs(Path({str(tmp_path / 'pipe')!r})); {SAID}"
    done = subprocess.run([sys.executable, "-c", first], cwd=ROOT, capture_output=True, check=True, timeout=60)

    problem, said = map(json.loads, done.stderr.splitlines())
    assert "logs go to stderr" in problem["event"] and said["event"] == "said"


def test_a_file_keeps_what_all_have_added_to_it(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        first = f"{IMPORTS}; own, other = None, own_stderr()"
        first += "".join(f"; configure_logs({to}); {SAID}" for to in ("own", "other", "own"))
        subprocess.run([sys.executable, "-c", first], cwd=ROOT, stderr=file, check=True)

    assert [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()] == ["said"] * 3


def test_a_file_that_is_renamed_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "log"
    configure_logs(file)
    logging.getLogger("service").warning("before")
    file.rename(tmp_path / "log.1")
    logging.getLogger("service").warning("after")
    for handler in logging.getLogger("service").handlers:
        handler.close()

    assert "before" in (tmp_path / "log.1").read_text() and "after" in file.read_text()


def test_on_a_terminal_lines_are_text_and_elsewhere_json() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, io.StringIO() as file:
        for stream in (terminal, file):
            configure_logs(stream=stream)
            logging.getLogger("trifold").info("ready", extra={"model": "stories"})
        shown, kept = os.read(ours, 1024).decode(), file.getvalue()
    os.close(ours)

    assert "ready" in shown and not shown.startswith("{")
    assert json.loads(kept)["model"] == "stories"


def test_the_form_of_lines_and_which_are_written_can_be_chosen() -> None:
    with io.StringIO() as stream:
        configure_logs(stream=stream, log_format="text", level="warning")
        logging.getLogger("trifold").info("said")
        try:
            raise ValueError("out of range")
        except ValueError:
            logging.getLogger("trifold").exception("failed", extra={"model": "stories"})
        written = stream.getvalue()

    assert "said" not in written
    assert re.search(r"\[error +\] failed .*model=stories\nTraceback .*ValueError: out of range", written, re.DOTALL)


def test_another_librarys_logger_writes_as_ours_do_once_it_is_taken_over() -> None:
    other = logging.getLogger("test.other")
    with io.StringIO() as stream, io.StringIO() as its_own:
        other.addHandler(logging.StreamHandler(its_own))
        configure_logs(stream=stream, log_format="json")
        take_over("test.other")
        other.info("connecting")
        other.warning("slow")
        written, before = json.loads(stream.getvalue()), its_own.getvalue()

    assert (written["event"], written["level"], before) == ("slow", "warning", "")


def test_a_traceback_is_whole_though_ray_replaces_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.print", lambda *_, **__: None)
    with io.StringIO() as stream:
        configure_logs(stream=stream, log_format="json")
        try:
            raise ValueError("out of range")
        except ValueError:
            logging.getLogger("trifold").exception("failed")
        written = json.loads(stream.getvalue())

    assert re.fullmatch(r"Traceback .*\n  File .*\nValueError: out of range", written["exception"], re.DOTALL)


def test_what_cannot_be_opened_is_told_and_does_not_stop_a_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    configure_logs(tmp_path / "nowhere" / "log")

    assert "TRIFOLD_LOG_TO" in json.loads(capfd.readouterr().err)["event"]


def test_a_full_disk_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rays:
        """As Ray has it in place of stderr: a log of its own, on the same disk."""

        def write(self, text: str) -> None:
            logging.getLogger("service").error(text)

    monkeypatch.setattr(sys, "stderr", Rays())
    configure_logs(Path("/dev/full"))
    try:
        for _ in range(3):
            logging.getLogger("service").info("request")
    finally:
        (handler,) = logging.getLogger("service").handlers
        assert isinstance(handler, logging.StreamHandler)
        with suppress(OSError):  # what it could not write is tried once more
            handler.stream.close()
