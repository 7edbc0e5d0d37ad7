"""Logs as JSON, a line each: what happened, when, in which request, in which trace; on a terminal as text.

A replica's own stderr is a file of Ray's, which nobody collects. So each process opens what the container, or the
command that started all, writes to (`TRIFOLD_LOG_TO`), and its lines are there for `kubectl logs`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import sys
from contextlib import suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path
from traceback import format_exception
from typing import Any, Literal, TextIO

import structlog

LOGGERS = ("service", "trifold")  # ours; what others log goes where it went before
LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


def _without_rays_own(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Leave out the field that Ray adds to every record of its processes."""
    event.pop("_ray_timestamp_ns", None)
    return event


def configure_logs(
    to: Path | None = None,
    stream: TextIO | None = None,
    *,
    log_format: LogFormat = "auto",
    level: LogLevel = "info",
) -> None:
    """Let this process's own loggers write to a file, pipe or terminal; what `extra` brings becomes fields.

    Without one, or if it cannot be opened, as a socket cannot, they write to stderr. `auto` is text on a terminal, and
    JSON elsewhere.
    """
    logging.raiseExceptions = False  # a full disk is told on stderr else, which in replicas is a log of Ray's, too
    problem, handler = None, None
    if to is not None and stream is None:
        try:
            handler = _handler_of(to)
        except OSError as error:
            problem = error
    # Ray Serve puts a logger of its own in the place of sys.stderr, which keeps lines back until there are many.
    handler = handler or logging.StreamHandler(stream or sys.__stderr__)
    is_terminal = handler.stream is not None and handler.stream.isatty()
    is_text = log_format == "text" or (log_format == "auto" and is_terminal)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _without_rays_own,
            *(_as_text(in_colours=is_terminal) if is_text else _AS_JSON),
        ],
    )
    handler.setFormatter(formatter)
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    if problem is not None:
        logging.getLogger(__name__).warning("TRIFOLD_LOG_TO: %s; logs go to stderr", problem)


def take_over(name: str) -> None:
    """Let another's logger, as Ray Serve's in the process that starts all, write as ours do, from warnings on."""
    logger = logging.getLogger(name)
    logger.handlers = logging.getLogger(LOGGERS[0]).handlers
    logger.setLevel(logging.WARNING)
    logger.propagate = False


def _handler_of(to: Path) -> logging.StreamHandler[Any]:
    """Return what adds lines to a file or pipe; raises `OSError`."""
    is_file = to.is_file() or not to.exists()
    if is_file and to.parts[:2] != ("/", "proc"):  # where it is another process' own
        return _RenamedFileHandler(to, encoding="utf-8")
    # Who opens a pipe that nobody reads would wait for a reader; so it is an error.
    number = os.open(to, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(number, True)
    return logging.StreamHandler(os.fdopen(number, "a", encoding="utf-8"))


class _RenamedFileHandler(WatchedFileHandler):
    """Goes on in a new file where others rename the old one, as logrotate does; in the old one if none can be made."""

    def reopenIfNeeded(self) -> None:  # noqa: N802  # the library's name
        try:
            about: os.stat_result | None = Path(self.baseFilename).stat()
        except OSError:
            about = None
        if about is not None and (about.st_dev, about.st_ino) == (self.dev, self.ino):
            return
        with suppress(OSError):
            old, self.stream = self.stream, self._open()
            if old is not None:
                old.close()
            self._statstream()


def _traceback(exc_info: structlog.typing.ExcInfo) -> str:
    """Return an error's traceback. The libraries' own ways print it, and in replicas Ray has a print of its own."""
    return "".join(format_exception(*exc_info)).removesuffix("\n")


def _write_traceback(file: TextIO, error: structlog.typing.ExcInfo) -> None:
    file.write(f"\n{_traceback(error)}")


_AS_JSON: list[structlog.typing.Processor] = [
    structlog.processors.ExceptionRenderer(_traceback),
    structlog.processors.JSONRenderer(ensure_ascii=False),
]


def _as_text(*, in_colours: bool) -> list[structlog.typing.Processor]:
    return [structlog.dev.ConsoleRenderer(colors=in_colours, exception_formatter=_write_traceback)]


def open_streams() -> None:
    """Open /dev/null in the place of stdin, stdout and stderr where they are closed.

    Other files would get their numbers, and Ray does not start without a stderr.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # at the lowest free number, which is this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, os.O_RDWR), mode)  # as another file may be at its number by now
            for each in (name, f"__{name}__"):
                setattr(sys, each, stream)


def own_stderr() -> Path | None:
    """Return where other processes find this one's stderr; all append to it, if it is a file.

    None, and a warning, where they cannot open it: it is a socket, as systemd's journal has it.
    """
    number = sys.__stderr__.fileno() if sys.__stderr__ else 2
    if stat.S_ISSOCK(os.fstat(number).st_mode):
        logging.getLogger(__name__).warning(
            "stderr is a socket, which replicas cannot open, so their lines are in Ray's files (/tmp/trifold-%s/ray/"
            "session_latest/logs/worker-*.err) alone; TRIFOLD_LOG_TO names a file for the lines of all",
            os.getuid(),
        )
        return None
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
    return Path(f"/proc/{os.getpid()}/fd/{number}")
