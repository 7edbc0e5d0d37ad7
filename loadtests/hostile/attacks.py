"""Hostile clients: they send every kind of body in turns, hang up when it suits them, and keep slow sockets open."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from loadtests.hostile.bodies import Body
from loadtests.hostile.wire import Address, Connection, Request, post, read_answer, read_head

PAUSE_S = 0.25  # mean, between a client's requests: wide and heavy ones are meant, not a flood of small ones
PATIENCE_S = 30.0  # then a client hangs up and tries something else
HOLD_S = 150.0  # a slow socket is held so long, more than the service's own deadline
DRAIN_S = 5.0  # then what was left unread of a stream must have come
UNDERWAY = "underway at the end"  # what comes of attacks that the end of the run cuts off
RECEIVE_BUFFER = 2048  # bytes; the kernel doubles it

STORY = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 400, "min_tokens": 400}
LONG_STREAM = post("/models/stories/generate", {**STORY, "n": 16, "logprobs": 20, "stream": True})
LONG_ANSWER = post("/models/stories/generate", {**STORY, "n": 16})
SLOW_BODY = post("/models/sentiment/classify", {"model": "sentiment", "input": "good " * 400})


@dataclass(frozen=True)
class Target:
    """Whom a hostile client attacks, with which key."""

    address: Address
    key: str | None


Attack = Callable[[Target, random.Random], Awaitable[str]]  # returns what came of it: a status, or how it ended


@dataclass(frozen=True)
class Kind:
    """One kind of attack, and what should come of it."""

    name: str
    expected: str
    attack: Attack


@dataclass(frozen=True)
class Outcome:
    """What came of one attack, and when it was underway, by `time.monotonic()`."""

    what: str
    began: float
    ended: float


Tally = defaultdict[str, list[Outcome]]  # by kind


def make_tally() -> Tally:
    """Return an empty one."""
    return defaultdict(list)


def counted(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Return how often each thing came of attacks."""
    return Counter(outcome.what for outcome in outcomes)


def kinds(bodies: Sequence[Body], *, has_keys: bool) -> list[Kind]:
    """Return what the hostile clients do in turns."""
    found = [Kind(body.name, body.expected, _sending(body)) for body in bodies]
    if has_keys:
        found.append(Kind("wrong key", "401", wrong_key))
    stages = (before_anything, inside_the_body, while_waiting, in_mid_stream)
    return found + [Kind(f"hang-up {stage.__name__.replace('_', ' ')}", "left", stage) for stage in stages]


def slow_kinds() -> list[Kind]:
    """Return what the slow sockets do, each without end."""
    return [
        Kind("slow body", "408", SlowSender(SLOW_BODY, fast=len(SLOW_BODY.body) // 2)),
        Kind("slow head", "408", SlowSender(SLOW_BODY, fast=0, is_head_slow=True)),
        Kind("unread stream", "cut", SlowReader(LONG_STREAM)),
        Kind("stream at 1 byte/s", "cut", SlowReader(LONG_STREAM, byte_every_s=1.0)),
    ]


async def hostile_client(chosen: Sequence[Kind], target: Target, seed: int, tally: Tally) -> None:
    """Attack without end, by every kind equally often, in an order of its own."""
    rng = random.Random(seed)
    while True:
        for kind in rng.sample(chosen, len(chosen)):
            await attack_once(kind, target, rng, tally)
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))


async def slow_socket(kind: Kind, target: Target, seed: int, tally: Tally) -> None:
    """Do the same slow thing without end."""
    rng = random.Random(seed)
    while True:
        await attack_once(kind, target, rng, tally)
        await asyncio.sleep(1)


async def attack_once(kind: Kind, target: Target, rng: random.Random, tally: Tally) -> None:
    """Attack, and note what came of it."""
    began, what = time.monotonic(), UNDERWAY
    try:
        what = await kind.attack(target, rng)
    except TimeoutError:
        what = "no answer"
    except (OSError, EOFError):
        what = "reset"
    finally:
        tally[kind.name].append(Outcome(what, began, time.monotonic()))


def _sending(body: Body) -> Attack:
    ways = body.request(is_direct=True), body.request(is_direct=False)

    async def attack(target: Target, rng: random.Random) -> str:
        return await _status(rng.choice(ways), target)

    return attack


async def _status(request: Request, target: Target) -> str:
    with Connection(target.address, target.key) as connection:
        return str((await connection.ask(request, PATIENCE_S)).status)


async def wrong_key(target: Target, _rng: random.Random) -> str:
    """Ask with a key that nobody was given."""
    return await _status(LONG_ANSWER, Target(target.address, "not-a-key"))


async def before_anything(target: Target, rng: random.Random) -> str:
    """Connect, and hang up."""
    _reader, writer = await _connected(target)
    return await _hang_up(writer, rng, 0.2)


async def inside_the_body(target: Target, rng: random.Random) -> str:
    """Send the head and half of the body, and hang up."""
    _reader, writer = await _connected(target)
    writer.write(SLOW_BODY.head(target.address, target.key) + SLOW_BODY.body[: len(SLOW_BODY.body) // 2])
    return await _hang_up(writer, rng, 1.0)


async def while_waiting(target: Target, rng: random.Random) -> str:
    """Ask for much, and hang up before the answer."""
    _reader, writer = await _connected(target)
    writer.write(LONG_ANSWER.head(target.address, target.key) + LONG_ANSWER.body)
    return await _hang_up(writer, rng, 2.0)


async def in_mid_stream(target: Target, rng: random.Random) -> str:
    """Read the beginning of a stream, and hang up."""
    reader, writer = await _connected(target)
    try:
        async with asyncio.timeout(PATIENCE_S):
            writer.write(LONG_STREAM.head(target.address, target.key) + LONG_STREAM.body)
            status, _headers = await read_head(reader)
            if status != 200:
                return str(status)
            await reader.readexactly(rng.randint(1, 20_000))
        return await _hang_up(writer, rng, 0.5)
    finally:
        writer.transport.abort()


async def _connected(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.open_connection(target.address.host, target.address.port)


async def _hang_up(writer: asyncio.StreamWriter, rng: random.Random, within_s: float) -> str:
    """Hang up after a random while, politely (FIN) or not (RST)."""
    try:
        await asyncio.sleep(rng.uniform(0, within_s))
        if rng.random() < 0.5:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    finally:
        writer.transport.abort()
    return "left"


@dataclass(frozen=True)
class SlowSender:
    """Sends a request whose end takes for ever: a byte a second."""

    request: Request
    fast: int  # bytes of the body that come at once
    is_head_slow: bool = False
    byte_every_s: float = 1.0

    async def __call__(self, target: Target, _rng: random.Random) -> str:
        """Send until there is an answer, or for `HOLD_S`."""
        reader, writer = await _connected(target)
        whole = self.request.head(target.address, target.key)
        at_once = 20 if self.is_head_slow else len(whole) + self.fast
        whole += self.request.body
        dripping = asyncio.create_task(self._drip(writer, whole[:at_once], whole[at_once:]))
        try:
            async with asyncio.timeout(HOLD_S):
                return str((await read_answer(reader)).status)
        except TimeoutError:
            return "held"
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
            writer.transport.abort()

    async def _drip(self, writer: asyncio.StreamWriter, at_once: bytes, rest: bytes) -> None:
        writer.write(at_once)
        for byte in rest:
            await asyncio.sleep(self.byte_every_s)
            writer.write(bytes([byte]))


@dataclass(frozen=True)
class SlowReader:
    """Asks for a long stream and hardly reads it, from a socket with a small buffer."""

    request: Request
    byte_every_s: float | None = None  # None: nothing is read
    hold_s: float = HOLD_S

    async def __call__(self, target: Target, _rng: random.Random) -> str:
        """Hold the stream for long, then read what is left: "cut" if the service has ended it, "held" if not."""
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            connection.setblocking(False)
            async with asyncio.timeout(PATIENCE_S):
                await loop.sock_connect(connection, (target.address.host, target.address.port))
                head = self.request.head(target.address, target.key)
                await loop.sock_sendall(connection, head + self.request.body)
                status = (await loop.sock_recv(connection, 12)).decode("latin-1")[-3:]
            if status != "200":
                return status
            await self._hold(connection)
            return await _how_it_ended(connection)

    async def _hold(self, connection: socket.socket) -> None:
        """Read nothing, or a byte now and then."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.hold_s
        while loop.time() < until:
            await asyncio.sleep(self.byte_every_s or min(1.0, self.hold_s))
            if self.byte_every_s is not None and not await loop.sock_recv(connection, 1):
                return


async def _how_it_ended(connection: socket.socket) -> str:
    """Read what was sent and not yet read."""
    loop = asyncio.get_running_loop()
    last = b""
    try:
        async with asyncio.timeout(DRAIN_S):
            while piece := await loop.sock_recv(connection, 65536):
                last = last[-16:] + piece[-16:]
                if last.endswith(b"\r\n0\r\n\r\n"):
                    return "whole"
        return "cut"
    except TimeoutError:
        return "held"
    except OSError:
        return "cut"
