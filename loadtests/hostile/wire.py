"""HTTP/1.1 over plain sockets: cheaper than a client library, and able to send what no library would."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Address:
    """Where the service listens."""

    host: str
    port: int


def loopback(url: str) -> Address:
    """Return the address of a URL; raises `ValueError` for one that is not on this machine."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if parts.scheme != "http" or not is_loopback or parts.port is None:
        raise ValueError(f"{url} is not http://127.0.0.1:PORT; hostile traffic is only sent to this machine itself")
    return Address(host, parts.port)


@dataclass(frozen=True)
class Request:
    """What is sent, but for the key."""

    path: str
    body: bytes = b""
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()

    def head(self, address: Address, key: str | None) -> bytes:
        """Return everything before the body; `headers` come last, so that they may contradict the usual ones."""
        lines = [f"{self.method} {self.path} HTTP/1.1", f"Host: {address.host}:{address.port}"]
        if self.method == "POST":
            lines += ["Content-Type: application/json", f"Content-Length: {len(self.body)}"]
        if key is not None:
            lines.append(f"Authorization: Bearer {key}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def post(path: str, body: dict[str, Any]) -> Request:
    """Return a request with a JSON body."""
    return Request(path, json.dumps(body).encode())


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def stays_open(self) -> bool:
        """Whether the connection may be used again."""
        has_end = "content-length" in self.headers or "transfer-encoding" in self.headers
        return has_end and self.headers.get("connection", "").lower() != "close"


class Connection:
    """A connection that stays open between requests, until left; one request at a time."""

    def __init__(self, address: Address, key: str | None = None) -> None:
        self._address, self._key = address, key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def ask(self, request: Request, timeout_s: float) -> Answer:
        """Send a request and read its whole answer; raises `OSError`, `EOFError`, and `TimeoutError` which is one."""
        async with asyncio.timeout(timeout_s):
            reader, writer = await self._open()
            try:
                writer.write(request.head(self._address, self._key))
                writer.write(request.body)  # not waited for: the service may answer before it has read everything
                answer = await read_answer(reader)
            except BaseException:
                self.close()
                raise
        if not answer.stays_open:
            self.close()
        return answer

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and self._streams[0].at_eof():  # closed by the other side while it was idle
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.host, self._address.port)
        return self._streams

    def close(self) -> None:
        """Hang up at once."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read an answer to its end; raises `EOFError` when it breaks off, `OSError` when the connection is reset."""
    status, headers = await read_head(reader)
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b"".join([chunk async for chunk in chunks(reader)])
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = await reader.read()
    return Answer(status, headers, body)


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Read an answer's status and headers, after any `100 Continue`."""
    status = 100
    while status == 100:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(first.split(" ", 2)[1])
    fields = (line.split(":", 1) for line in lines if line)
    return status, {name.lower(): value.strip() for name, value in fields}


async def chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a body in chunked encoding."""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
