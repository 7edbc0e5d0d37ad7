from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from uvicorn import Config, Server

from service.accepting import accept_several

CLIENTS = 12


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Be an application that nobody asks."""


async def accepted_in_a_turn() -> int:
    """Return how many of the connections that wait are accepted the next time that the event loop goes round."""
    server = Server(Config(answer, lifespan="off", log_config=None))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = listener.getsockname()
        await server.startup([listener])
        for _ in range(CLIENTS):  # the kernel takes them, as the loop stands still meanwhile
            stack.enter_context(socket.create_connection(address))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        accepted = len(server.server_state.connections)
        for _ in range(3 * CLIENTS):
            await asyncio.sleep(0)
        assert len(server.server_state.connections) == CLIENTS
        await server.shutdown([listener])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    return accepted


def test_connections_that_wait_are_accepted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "startup", Server.startup)  # so that it is as before afterwards
    one_by_one = uvloop.run(accepted_in_a_turn())
    accept_several()
    together = uvloop.run(accepted_in_a_turn())

    assert one_by_one <= 3 and together == CLIENTS
