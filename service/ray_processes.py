"""Ray on a single machine, tried again where it does not start, and without two processes that are of no use there.

What its processes have to report is logged with all else, which Ray would print among the lines of the log.

`ray.init` has no argument against them: the log monitor, which would print replicas' lines here a second time, and the
dashboard, which even where it is switched off counts Ray's usage. They take 45 and 75 MB, and wake several times a
second. The autoscaler's monitor has no nodes to add, but the number of nodes in Ray's metrics is its.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray._private import node as ray_node
from ray._private import ray_constants, utils, worker
from ray._private.node import Node

from service.settings import variable
from service.settings_errors import SettingsError
from service.signals import UntilReady
from service.startup import SHORT_PLACE, temporary_place

# Requests and answers of the gateway pass through it; Ray would take a third of the memory.
OBJECT_STORE_BYTES = 256 * 2**20
LONGEST_PLACE = 32  # characters, to which "/ray" comes, and Ray adds some 70
LEFT_S = 24 * 3600.0  # after which a folder that nobody has written to is one of an earlier run
KEPT_SESSIONS = 5  # folders of earlier runs, whose logs may be wanted
TRIES = 3  # Ray gives its own processes half a minute, which is little on a machine that is busy with others

logger = logging.getLogger(__name__)


class WholeNode(Node):
    """Ray's processes, of which none is left behind where they do not all start."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except BaseException:
            self.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)  # so that ports are free
            raise


def start_ray(metrics_port: int | None, signals: UntilReady) -> None:
    """Start Ray on this machine, for this process and its children alone.

    Signals wait until it has started, as an exception in the midst of it is lost or crashes what of Ray is written in
    C++; its own handlers, which raise such, are not set. Raises what Ray raised at the last try, and `SystemExit`.
    """
    ray_node.Node = WholeNode  # type: ignore[misc]  # which `ray.init` makes there
    utils.set_sigterm_handler = lambda _handler: None
    ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER = True  # here; of replicas' crashes Ray reports
    folder = ray_folder()
    remove_old_sessions(folder)
    for tries_left in reversed(range(TRIES)):
        try:
            with signals.held():
                ray.init(
                    address="local",
                    include_dashboard=False,
                    log_to_driver=False,
                    configure_logging=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(folder),
                    _metrics_export_port=metrics_port,
                )
            break
        except Exception as error:
            if not tries_left:
                raise
            logger.warning("Ray did not start, and is started again: %s", error)
    worker.print_to_stdstream = _log_reports  # type: ignore[assignment]  # which Ray's thread that listens for them calls
    node: Node = worker._global_node  # type: ignore[assignment]  # which it has said is None
    for end in (node.kill_log_monitor, node.kill_dashboard):
        end(check_alive=False)


def ray_folder() -> Path:
    """Return where Ray is to put its files: in a folder of this user's alone, as Ray lets all write into its own.

    It is made if it is not there. Where the usual place is too long for sockets, or not in ASCII, it is elsewhere.
    Raises `SettingsError`.
    """
    name = f"trifold-{os.getuid()}"
    own = Path(variable("RAY_TMPDIR") or temporary_place(), name)
    if not own.is_absolute():
        raise SettingsError(f"RAY_TMPDIR: {own.parent} must be an absolute path")
    if len(str(own)) > LONGEST_PLACE or not str(own).isascii():
        own = Path(SHORT_PLACE, name)
    try:
        with suppress(FileExistsError):
            own.mkdir(mode=0o700)
    except OSError as error:
        raise SettingsError(
            f"{own.parent}: no folder can be made there: {error.strerror}; name another place in RAY_TMPDIR or TMPDIR"
        ) from None
    status = own.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
        own = Path(tempfile.mkdtemp(prefix="trifold-", dir=SHORT_PLACE))  # somebody else was there before
    own.chmod(0o700)
    return own / "ray"


def remove_old_sessions(folder: Path) -> None:
    """Remove what earlier runs have left of Ray's logs, but for the newest few.

    One that runs writes to its logs every few seconds, in whatever container it is; its process may have any number.
    """
    ended = [path for path in sorted(folder.glob("session_*_*")) if not path.is_symlink() and _is_left(path)]
    for path in ended[:-KEPT_SESSIONS]:
        shutil.rmtree(path, ignore_errors=True)


def _is_left(session: Path) -> bool:
    """Whether nothing in a session's folder, nor among its logs, has changed for long."""
    try:
        newest = max(path.lstat().st_mtime for path in (session, *session.glob("*"), *session.glob("logs/*")))
    except OSError:  # somebody removes it just now
        return False
    return time.time() - newest > LEFT_S


def ray_lives() -> bool:
    """Whether those of Ray's processes on this machine live without which nothing is served."""
    node: Node | None = worker._global_node
    return node is not None and not {"gcs_server", "raylet"} & {kind for kind, _ in node.dead_processes()}


def expect_ray_to_end() -> None:
    """Log no reports any more: the last would be that Serve's controller, which shuts down, is dead."""
    worker.print_to_stdstream = lambda *_, **__: None


def _log_reports(reports: dict[str, Any], *_: Any, **__: Any) -> None:
    for report in reports["lines"]:
        logger.warning("Ray reports: %s", report)
