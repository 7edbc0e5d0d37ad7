"""What rents hosts to a cluster: Ray's autoscaler, on the head, asks for them over HTTP, and gives them back."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ray.autoscaler.tags import NODE_KIND_HEAD, NODE_KIND_WORKER, TAG_RAY_NODE_KIND, TAG_RAY_USER_NODE_TYPE

from loadtests.chaos import hosts
from loadtests.chaos.hosts import MACHINE, NUMBERS, Host

HEAD = "head"
GRACE_S = 30.0  # of a host that is given back; Ray has emptied it before
# What a host of a type runs, by its id, its type, its address, and its resources; and the environment of that.
Command = Callable[[str, str, str, Mapping[str, float]], tuple[list[str], dict[str, str]]]


@dataclass
class Rented:
    """A host, and what Ray's autoscaler calls it."""

    host: Host
    kind: str  # the type of node
    tags: dict[str, str]


@dataclass
class Cloud:
    """All hosts of a run, by their ids."""

    folder: Path
    command: Command
    rented: dict[str, Rented] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _started: int = 0
    _ending: set[int] = field(default_factory=set)  # numbers of hosts that are being killed

    def start_head(self) -> None:
        """Start a head, always at the same address, as a service's name leads to it in Kubernetes.

        Its name is a new one, as that of a pod: Ray's autoscaler gives back whatever has the name of a dead node, of
        which it reads in Redis.
        """
        with self._lock:
            self._start(HEAD, NUMBERS[0], {TAG_RAY_NODE_KIND: NODE_KIND_HEAD, TAG_RAY_USER_NODE_TYPE: HEAD}, {})

    def head(self) -> str:
        """Return the name of the head."""
        with self._lock:
            return next(name for name, rented in self.rented.items() if rented.kind == HEAD)

    def has_lost_its_head(self) -> bool:
        """Whether the head has ended by itself."""
        with self._lock:
            return any(rented.kind == HEAD and not rented.host.is_alive() for rented in self.rented.values())

    def start_worker(self, tags: dict[str, str], resources: Mapping[str, float]) -> None:
        """Start a host of the type that the tags name."""
        with self._lock:
            taken = {rented.host.number for rented in self.rented.values()} | self._ending
            number = next(number for number in NUMBERS[1:] if number not in taken)
            self._start(tags[TAG_RAY_USER_NODE_TYPE], number, {**tags, TAG_RAY_NODE_KIND: NODE_KIND_WORKER}, resources)

    def _start(self, kind: str, number: int, tags: dict[str, str], resources: Mapping[str, float]) -> None:
        self._started += 1
        name = f"{kind}-{self._started}"
        command, environment = self.command(name, kind, hosts.address_of(number), resources)
        self.rented[name] = Rented(hosts.start(number, command, environment, self.folder / name), kind, tags)

    def kill(self, name: str, *, unplugged: bool = False) -> None:
        """Kill a host, or take its power; it is no longer listed."""
        with self._lock:
            host = self.rented.pop(name).host
            self._ending.add(host.number)  # its address is free for another one when nothing is left of it
        host.unplug() if unplugged else host.kill()
        with self._lock:
            self._ending.discard(host.number)

    def give_back(self, name: str) -> None:
        """End a host; the autoscaler need not wait for it."""
        with self._lock:
            rented = self.rented.get(name)
        if rented is not None:
            threading.Thread(target=self._end, args=(name, rented.host), daemon=True).start()

    def _end(self, name: str, host: Host) -> None:
        host.stop(GRACE_S)
        with self._lock:  # its address is free for another one only now
            self.rented.pop(name, None)

    def counts(self) -> Counter[str]:
        """Return how many hosts of each type there are."""
        with self._lock:
            return Counter(rented.kind for rented in self.rented.values())

    def listing(self) -> dict[str, dict[str, Any]]:
        """Return what the autoscaler is told: hosts whose first process has ended are not there any more."""
        with self._lock:
            for name in [name for name, rented in self.rented.items() if not rented.host.is_alive()]:
                self.rented.pop(name).host.kill()
            return {name: {"tags": rented.tags, "ip": rented.host.ip} for name, rented in self.rented.items()}

    def close(self) -> None:
        """Kill all hosts."""
        with self._lock:
            while self.rented:
                self.rented.popitem()[1].host.kill()


@contextmanager
def serving(cloud: Cloud) -> Iterator[str]:
    """Answer Ray's autoscaler until left, on an address that only hosts reach; the address. Then kill all hosts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(cloud.listing())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for _ in range(asked["count"]):
                cloud.start_worker(asked["tags"], asked["resources"])
            self._answer({})

        def do_DELETE(self) -> None:
            cloud.give_back(self.path.removeprefix("/"))
            self._answer({})

        def _answer(self, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((MACHINE, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{MACHINE}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        cloud.close()
