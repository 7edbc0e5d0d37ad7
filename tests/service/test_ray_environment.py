from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
import ray.serve._private.constants

from service.ports import Ports
from service.ray_environment import (
    FALLBACK_PORT,
    MEMORY,
    haproxy_connections,
    haproxy_files,
    haproxy_ports,
    own_token,
    prepare_single_machine,
)
from service.settings import Limits, Settings
from service.timeouts import Timeouts

HELD_AFTER_A_BURST = """
import ctypes, threading
from ctypes import c_size_t, c_void_p
import psutil
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = c_void_p, [c_size_t], [c_void_p]

def burst():
    for size in (24 * 2**20, 100_000):  # one large block, after whose end glibc keeps blocks of its size
        blocks = [libc.malloc(size) for _ in range(2**25 // size + 1)]
        for block in blocks:
            ctypes.memset(block, 1, size)
        for block in blocks:
            libc.free(block)
    libc.malloc_trim(0)

before = psutil.Process().memory_info().rss
for _ in range(4):
    thread = threading.Thread(target=burst)
    thread.start()
    thread.join()
print((psutil.Process().memory_info().rss - before) // 2**20)
"""


STARTED_IN_UTF8 = """
import locale, os
from service.ray_environment import start_in_utf8
start_in_utf8()
print(os.getpid(), locale.getpreferredencoding(False), os.environ["PYTHONUTF8"])
"""
IN_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere files are always written in UTF-8")
def test_where_files_are_not_written_in_utf8_the_process_starts_anew_under_its_number() -> None:
    command = [sys.executable, "-c", STARTED_IN_UTF8]
    with subprocess.Popen(command, env=os.environ | IN_ASCII, stdout=subprocess.PIPE, text=True) as process:
        told, _ = process.communicate()

    assert told == f"{process.pid} utf-8 1\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere files are always written in UTF-8")
def test_a_process_that_does_not_heed_the_variable_for_utf8_is_refused_and_not_started_for_ever() -> None:
    command = [sys.executable, "-X", "utf8=0", "-c", STARTED_IN_UTF8]
    done = subprocess.run(command, env=os.environ | IN_ASCII, capture_output=True, text=True, check=False)

    assert done.returncode == 1 and not done.stdout
    assert "files are written in ANSI_X3.4-1968 here, and Ray needs UTF-8; set PYTHONUTF8=1" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_what_a_thread_has_freed_can_be_given_back() -> None:
    held = {
        name: int(
            subprocess.run(
                [sys.executable, "-c", HELD_AFTER_A_BURST],
                env={**{k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}, **environment},
                capture_output=True,
                check=True,
            ).stdout
        )
        for name, environment in (("as set", MEMORY), ("by default", {}))
    }

    assert held["as set"] < 4 < held["by default"]


def test_what_decides_whether_keys_are_needed_is_not_for_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S"  # as compose files set what is not set
    monkeypatch.setattr(os, "environ", os.environ | {"TRIFOLD_LISTEN": "0.0.0.0:9000", empty: ""})
    monkeypatch.setattr("service.ray_environment.haproxy_binary", lambda: "haproxy")
    ports = Ports()
    prepare_single_machine(Settings(port=8000), Timeouts.of(Limits()), ports, tmp_path)
    ports.close()

    assert os.environ["TRIFOLD_LISTEN"] == "127.0.0.1:8000"
    assert os.environ[empty] == str(Timeouts.of(Limits()).haproxy_client)


def test_services_of_one_machine_share_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for ports in (Ports(), Ports()):
        environment = {name: value for name, value in os.environ.items() if name != FALLBACK_PORT}
        monkeypatch.setattr(os, "environ", environment)
        prepare_single_machine(Settings(), Timeouts.of(Limits()), ports, tmp_path)
        port = int(environment[FALLBACK_PORT])
        with socket.socket() as others, pytest.raises(OSError, match="in use"):
            others.bind(("127.0.0.1", port))
        with socket.socket() as proxy:
            proxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as Serve's does
            proxy.bind(("127.0.0.1", port))
        told.append(port)
        ports.close()

    assert told[0] != told[1]


def test_haproxys_pages_have_other_ports_where_another_service_has_theirs() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("", 9101))
            other.listen()
        except OSError:
            pass  # somebody has it already
        with closing(Ports()) as ports:
            pages = haproxy_ports("127.0.0.1", ports)
    assert int(pages["RAY_SERVE_HAPROXY_METRICS_PORT"]) not in (0, 9101)


def test_haproxys_pages_have_different_ports_in_services_that_start_together() -> None:
    with closing(Ports()) as first, closing(Ports()) as second:
        taken = [set(haproxy_ports("127.0.0.1", ports).values()) for ports in (first, second)]

    assert len(set.union(*taken)) == 4


def test_haproxys_sockets_are_where_only_this_user_may_go_and_have_short_names() -> None:
    with tempfile.TemporaryDirectory(prefix="haproxy-", dir="/tmp") as folder:
        files = haproxy_files(Path(folder))
        constants = Path(ray.serve._private.constants.__file__).read_text()
        for name, place in files.items():
            assert f'"{name}"' in constants and Path(folder) in (Path(place), *Path(place).parents)
        node, binding = "0" * 56, ".4194304.tmp"  # Ray adds a folder, and HAProxy an ending while it binds
        assert len(f"{folder}/{node}/metrics.sock{binding}") < 108
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


def test_haproxy_has_no_more_connections_than_files_for_them() -> None:
    most = {files: int(haproxy_connections(files)["RAY_SERVE_HAPROXY_MAXCONN"]) for files in (1024, 4096, 20_000)}

    assert most[20_000] == 4096
    assert 300 < most[1024] < 410 and 1500 < most[4096] < 1638  # at two and a half files each


def test_each_run_has_a_token_of_its_own_for_rays_processes() -> None:
    first, second = own_token(), own_token()

    assert first["RAY_AUTH_MODE"] == "token" and len(first["RAY_AUTH_TOKEN"]) == 64 and first != second
