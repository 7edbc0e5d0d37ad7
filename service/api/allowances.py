"""What a key may still ask of this process: requests and tokens a minute, and requests in progress.

Every process counts for itself: the gateway, and each replica of a model. Sharing the counts would put a round trip
before every request.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from service.errors import RateLimited
from service.keys import Key

Clock = Callable[[], float]
MINUTE_S = 60.0
SOON_S = 1  # when to ask whether one of one's own requests has ended
REQUESTS, TOKENS = "Requests", "Tokens"
# OpenAI's names
RATE_HEADERS = tuple(f"X-RateLimit-{said}-{what}" for what in (REQUESTS, TOKENS) for said in ("Limit", "Remaining"))


class Bucket:
    """So much a minute: full at first, refilled evenly. It may be overdrawn, and the debt is waited for."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._level, self._at = float(per_minute), clock()

    def level(self) -> float:
        """Return what is left; less than 0 is a debt."""
        now = self._clock()
        refill = (now - self._at) * self.per_minute / MINUTE_S
        self._level, self._at = min(float(self.per_minute), self._level + refill), now
        return self._level

    def take(self, amount: int) -> None:
        """Take so much, be it there or not."""
        self._level = self.level() - amount

    def wait_s(self) -> int:
        """Return in how many whole seconds there is one again; 0: there is."""
        return max(0, math.ceil((1 - self.level()) * MINUTE_S / self.per_minute))


class Allowance:
    """One key's requests at this process."""

    def __init__(self, key: Key, clock: Clock = time.monotonic) -> None:
        self.key = key
        self._clock = clock
        self._in_progress = 0
        limits = {REQUESTS: key.requests_per_minute, TOKENS: key.tokens_per_minute}
        self._buckets = {what: Bucket(limit, clock) for what, limit in limits.items() if limit is not None}

    def renewed(self, key: Key) -> Allowance:
        """Return what holds for an entry of this name that was read again: the same, unless its limits are others."""
        if key.limits != self.key.limits:
            return Allowance(key, self._clock)
        self.key = key
        return self

    def begin(self) -> None:
        """Let a request in; raises `RateLimited`, and then it counts as none."""
        most = self.key.concurrent_requests
        if most is not None and self._in_progress >= most:
            raise RateLimited(
                f"this key has {most} requests in progress, its limit (concurrent_requests)", retry_after_s=SOON_S
            )
        waits = {what: bucket.wait_s() for what, bucket in self._buckets.items()}
        what = max(waits, key=waits.__getitem__, default=REQUESTS)  # the one waited for longest
        if wait_s := waits.get(what):
            per_minute, limit = self._buckets[what].per_minute, f"{what.lower()}_per_minute"
            raise RateLimited(
                f"this key has used its {per_minute} {what.lower()} a minute ({limit}); there is room in {wait_s} s",
                retry_after_s=wait_s,
            )
        if REQUESTS in self._buckets:
            self._buckets[REQUESTS].take(1)
        self._in_progress += 1

    def end(self, tokens: int) -> None:
        """Charge a request that was let in, once it has ended, for the tokens it took."""
        self._in_progress -= 1
        if TOKENS in self._buckets:
            self._buckets[TOKENS].take(tokens)

    def headers(self) -> dict[str, str]:
        """Return what an answer says of the limits."""
        return {
            name: str(value)
            for what, bucket in self._buckets.items()
            for name, value in (
                (f"X-RateLimit-Limit-{what}", bucket.per_minute),
                (f"X-RateLimit-Remaining-{what}", max(0, math.floor(bucket.level()))),
            )
        }
