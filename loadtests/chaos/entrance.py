"""What stands before a cluster's nodes: an HAProxy, as an Ingress or a gateway would.

It sends each request to a worker whose own ingress says that it is ready, asked every second, and elsewhere if it
cannot connect; none to the head. A request that a node has taken is never sent again; if the node dies, its answer is a
502. (On a connection to a node that has served a request before, HAProxy would hang up in silence, hence
`http-server-close`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests.chaos.hosts import NUMBERS, address_of
from loadtests.chaos.programs import running
from loadtests.hostile.wire import Address
from service.ingress import LIVENESS, SERVER
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
def entrance(binary: str, folder: Path, port: int, timeouts: Timeouts) -> Iterator[Address]:
    """Run HAProxy's binary on a port of 127.0.0.1 until left; nodes that are not there count as down."""
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
    with running([binary, "-db", "-f", str(folder / "entrance.cfg")], folder / "entrance.log"):
        yield Address("127.0.0.1", port)
