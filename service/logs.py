"""Logs as JSON, a line each, on stderr: what happened, when, in which request, in which trace."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

LOGGERS = ("service", "trifold")  # ours; what others log goes where it went before


def _without_rays_own(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Leave out the field that Ray adds to every record of its processes."""
    event.pop("_ray_timestamp_ns", None)
    return event


def configure_logs(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Let this process's own loggers write JSON; what `extra` brings becomes fields."""
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
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )
    # Ray Serve puts a logger of its own in the place of sys.stderr, which keeps lines back until there are many.
    handler = logging.StreamHandler(stream or sys.__stderr__)
    handler.setFormatter(formatter)
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
