"""Server-sent events as they come, with the times that a reader of a stream feels."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stream:
    """What came of one stream: when its pieces came, and its last message's usage."""

    first_s: float | None = None  # from the request to the first piece
    between_s: list[float] = field(default_factory=list)  # from a piece to the next
    usage: dict[str, int] = field(default_factory=dict)
    error: str | None = None

    def read(self, lines: Iterable[str], started: float) -> None:
        """Read a stream to its end; `started` is `time.perf_counter()` of its request."""
        last = started
        for message in messages(lines):
            now = time.perf_counter()
            self.usage = message.get("usage") or self.usage
            if self.first_s is None:
                self.first_s = now - started
            elif not message.get("usage"):  # which is no piece of the answer
                self.between_s.append(now - last)
            last = now
            if "error" in message:
                self.error = message["error"]["code"]
        if not self.usage and self.error is None:
            self.error = "the stream broke off"


def messages(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON messages of an event stream."""
    for line in lines:
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))
