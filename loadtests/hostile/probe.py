"""How long a model's event loop stalls, seen from outside: a cheap route, asked ten times a second."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from loadtests.hostile.wire import Address, Connection, Request

EVERY_S = 0.1
TIMER_S = 0.02
TIMEOUT_S = 60.0
HELD = ("trifold_kv_slots_used", "trifold_sequences_running", "trifold_sequences_waiting")


@dataclass
class Probe:
    """What the probes of one model found in one phase."""

    seconds: list[float] = field(default_factory=list)  # of answers, and of probes that failed
    failures: int = 0


async def probe(model: str, address: Address, found: Probe) -> None:
    """Ask one model's health without end, on a connection that stays open.

    Probes that were due while one waited count from when they were due: one stall is not a single slow probe.
    """
    request = Request(f"/models/{model}/health", method="GET")
    due = time.monotonic()
    with Connection(address) as connection:
        while True:
            try:
                answer = await connection.ask(request, TIMEOUT_S)
                found.failures += answer.status != 200
            except (OSError, EOFError):
                found.failures += 1
            answered = time.monotonic()
            while due <= answered:
                found.seconds.append(answered - due)
                due += EVERY_S
            await asyncio.sleep(due - answered)


async def own_timer(late: list[float]) -> None:
    """Note without end how much later than it should this process goes on, in seconds: no service has a part in that.

    What is late here is late in every measurement.
    """
    while True:
        due = time.monotonic() + TIMER_S
        await asyncio.sleep(TIMER_S)
        late.append(time.monotonic() - due)


async def metrics_page(address: Address, key: str | None) -> str:
    """Return what the service has counted; raises `OSError` when it does not answer."""
    with Connection(address, key) as connection:
        answer = await connection.ask(Request("/metrics", method="GET"), TIMEOUT_S)
    if answer.status != 200:
        raise OSError(f"/metrics answers {answer.status}")
    return answer.body.decode()


def held(page: str) -> dict[str, float] | None:
    """Return what the models hold, by metric and model, where it is not nothing; None of a page without these."""
    families = text_string_to_metric_families(page)
    samples = [sample for family in families for sample in family.samples if sample.name in HELD]
    if {sample.name for sample in samples} != set(HELD):
        return None
    return {f"{sample.name} {sample.labels['model']}": sample.value for sample in samples if sample.value}
