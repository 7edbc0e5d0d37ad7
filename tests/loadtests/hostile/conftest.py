"""A stand-in for the service: it writes down what it is sent, and answers as it is told."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from loadtests.hostile.wire import Address


@dataclass
class Seen:
    """One request, as far as it came."""

    head: str = ""
    body: bytes = b""
    came: list[float] = field(default_factory=list)  # when the pieces of the body came
    is_whole: bool = False
    is_left: asyncio.Event = field(default_factory=asyncio.Event)  # answered, or the client has hung up


def json_answer(content: Any, status: int = 200) -> bytes:
    body = json.dumps(content).encode()
    return f"HTTP/1.1 {status} Any\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def event_answer(*messages: str) -> bytes:
    """Return a stream of events, each in a chunk of its own."""
    events = [f"data: {message}\n\n".encode() for message in messages]
    pieces = [f"{len(event):x}\r\n".encode() + event + b"\r\n" for event in events]
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(pieces) + b"0\r\n\r\n"


@dataclass
class StandIn:
    """What was seen, and how to answer: `answer` gets the request line and the body."""

    address: Address
    seen: list[Seen] = field(default_factory=list)
    answer: Callable[[str, bytes], bytes] = lambda _line, _body: json_answer({"ok": True})
    is_met: asyncio.Event = field(default_factory=asyncio.Event)  # somebody has connected
    hangs_up: bool = False  # after an answer
    transports: list[asyncio.WriteTransport] = field(default_factory=list)  # of all connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = Seen()
        self.seen.append(seen)
        self.transports.append(writer.transport)
        self.is_met.set()
        try:
            while await self._one(seen, reader, writer):
                seen.is_left.set()
                seen = Seen()
                self.seen.append(seen)
        except OSError:
            pass  # the client has left
        finally:
            seen.is_left.set()
            writer.transport.abort()

    async def _one(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            seen.head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError as error:
            seen.head = error.partial.decode("latin-1")
            return False
        length = re.search(r"Content-Length: (\d+)", seen.head)
        while len(seen.body) < (int(length[1]) if length else 0):
            if not (piece := await reader.read(2**20)):
                return False
            seen.body += piece
            seen.came.append(asyncio.get_running_loop().time())
        seen.is_whole = True
        writer.write(self.answer(seen.head.split("\r\n")[0], seen.body))
        await writer.drain()
        return not self.hangs_up


@pytest.fixture
async def stand_in() -> AsyncGenerator[StandIn, None]:
    """Listen on a free port."""
    server = StandIn(Address("127.0.0.1", 0))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**16)
    server.address = Address("127.0.0.1", listening.sockets[0].getsockname()[1])
    yield server
    listening.close()
    async with asyncio.timeout(5):
        await asyncio.gather(*(seen.is_left.wait() for seen in server.seen))
