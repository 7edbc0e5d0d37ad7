"""A request's time: from its head, which has arrived when this is called, to the last byte of its answer."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.middleware import error_response
from service.api.observing import observed
from service.errors import DeadlineExceeded
from service.settings import Limits

PIECE = 2**16  # bytes of an answer, as many as the server holds for a reader before it waits
LAST_WORDS_S = 1.0  # within which a request that is over says so; then it is cut
READER_STALLED = "reader_stalled"  # the reason in metrics and logs; the reader itself learns nothing

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def deadline() -> float | None:
    """Return when the request in progress must be over, in the event loop's time; None outside of one."""
    return _deadline.get()


def deadline_exceeded(limits: Limits) -> DeadlineExceeded:
    """Return the error of a request that was not finished in time."""
    return DeadlineExceeded(f"not finished within {limits.request_timeout_s:g} s; ask for less at a time")


class KeepDeadline:
    """Cancels a request that is not over in time, whatever it waits for: its body, its turn, its model or its reader.

    Routes look at `deadline` themselves, so that what they answer is the error; this cuts who could not even say that,
    most of all for a reader who does not take what it asked for. What was sent cannot be taken back, so the server
    closes the connection of an answer that is not whole.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        over = asyncio.get_running_loop().time() + self._limits.request_timeout_s
        _deadline.set(over)
        clock = _Clock(send, over + LAST_WORDS_S, self._limits.stall_timeout_s)
        try:
            async with clock.timeout:
                clock.check()
                await self._app(scope, receive, clock.send)
        except TimeoutError:
            if not clock.timeout.expired():
                raise
            observed().reason = READER_STALLED if clock.is_reader_late else DeadlineExceeded.code
            if not clock.has_begun:
                await error_response(deadline_exceeded(self._limits))(scope, receive, send)
        finally:
            clock.stop()


class _Clock:
    """One timer a request, which strikes when the request is over, or its reader late with what was last sent.

    It looks again at least as often as a reader may stall, so that a send costs no timer of its own.
    """

    def __init__(self, send: Send, over: float, stall: float) -> None:
        self._send, self._over, self._stall = send, over, stall
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._one_at_a_time = asyncio.Lock()  # a comment must not come between the pieces of an event
        self._sending_since: float | None = None
        self.timeout = asyncio.timeout(None)
        self.has_begun = self.is_reader_late = False

    async def send(self, message: Message) -> None:
        """Send a message; whoever waits for it to be taken is watched.

        A large one goes in pieces, and an empty one behind them: the server waits for a reader before a piece, so that
        a request is over when its reader has taken nearly all, and not when the server has it.
        """
        body = message.get("body", b"")
        async with self._one_at_a_time:
            if len(body) <= PIECE:
                await self._send_piece(message)
                return
            for start in range(0, len(body), PIECE):
                await self._send_piece({**message, "body": body[start : start + PIECE], "more_body": True})
            if not message.get("more_body", False):
                await self._send_piece({**message, "body": b""})

    async def _send_piece(self, message: Message) -> None:
        self.has_begun = True
        self._sending_since = self._loop.time()
        try:
            await self._send(message)
        finally:
            self._sending_since = None

    def check(self) -> None:
        """Strike, or look again when it may be time."""
        now = self._loop.time()
        ends = min(self._over, (now if self._sending_since is None else self._sending_since) + self._stall)
        if now < ends:
            self._timer = self._loop.call_at(ends, self.check)
        else:
            self.is_reader_late = self._sending_since is not None
            self.timeout.reschedule(now)

    def stop(self) -> None:
        """Strike no more."""
        if self._timer is not None:
            self._timer.cancel()
