"""How a process takes connections: several each time that its event loop goes round."""

from __future__ import annotations

from socket import socket

from uvicorn import Server

TIMES = 16  # that one socket is listened to, and so the most connections that are accepted in a turn of the loop


def accept_several() -> None:
    """Let the servers that this process starts from now on accept several connections in a turn of the event loop.

    uvloop accepts one for each socket. A busy loop takes tens of milliseconds a turn: new connections would wait in the
    kernel, where nobody refuses them, and HAProxy would take the replica for dead. Ray opens the socket and starts
    uvicorn, which here listens to copies of that socket, too.
    """
    startup = Server.startup

    async def with_copies(server: Server, sockets: list[socket] | None = None) -> None:
        copies = [given.dup() for given in sockets or [] for _ in range(TIMES - 1)]
        await startup(server, sockets and [*sockets, *copies])

    Server.startup = with_copies  # type: ignore[method-assign, assignment]  # Ray takes no server of another class
