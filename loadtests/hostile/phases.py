"""The run: right answers, a steady state, polite users alone, the same beside hostile clients, and quiet again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from loadtests.hostile import verdicts
from loadtests.hostile.attacks import Kind, Tally, Target, hostile_client, kinds, make_tally, slow_kinds, slow_socket
from loadtests.hostile.bodies import bodies
from loadtests.hostile.polite import Right, Sample, User, ask_all_once, right_answers, use, users
from loadtests.hostile.probe import Probe, held, metrics_page, own_timer, probe
from loadtests.hostile.processes import MODELS, Keys, Kill, Killer, Service, Usage, is_alive, most
from loadtests.hostile.verdicts import Verdict
from loadtests.hostile.warmup import warm_up
from loadtests.hostile.wire import Connection, Request

READY_WITHIN_S = 180.0
QUIET_S = 5.0  # until the models have given memory back, and as long again, in which they are looked at several times
LOOK_EVERY_S = 1.0
HOSTILE_CLIENTS = 16


@dataclass(frozen=True)
class Plan:
    """How long everything takes, in seconds."""

    seconds: float = 300.0
    baseline_s: float = 45.0
    settle_s: float = 120.0  # at most; it goes on as soon as everything is as before
    kill_every_s: float = 60.0  # 0: nothing is killed
    seed: int = 0


@dataclass
class Phase:
    """What one phase with polite users showed."""

    samples: list[Sample] = field(default_factory=list)
    probes: dict[str, Probe] = field(default_factory=lambda: {model: Probe() for model in MODELS})
    cpu: float = 0.0  # share of a core that this process used
    late: list[float] = field(default_factory=list)  # seconds by which this process went on later than it should
    seconds: float = 0.0


@dataclass
class Run:
    """Everything that a run showed."""

    plan: Plan
    kinds: list[Kind]
    alone: Phase = field(default_factory=Phase)
    beside: Phase = field(default_factory=Phase)
    tally: Tally = field(default_factory=make_tally)
    kills: list[Kill] = field(default_factory=list)
    before: list[Usage] = field(default_factory=list)
    after: list[Usage] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


async def run(service: Service, keys: Keys, plan: Plan) -> Run:
    """Run all phases; raises `RuntimeError` where the service does not even serve polite users alone."""
    has_keys = keys.hostile != [None]
    found = Run(plan, [*kinds(bodies(), has_keys=has_keys), *slow_kinds()])
    asked, key = users(), keys.polite[0]
    await wait_until_ready(service)
    right = await right_answers(asked, service.address, key)
    await warm_up(service.address, key)
    await polite_phase(service, keys, asked, right, plan.baseline_s, found.alone)
    found.before = await usage_before(service)
    killer = Killer(service, plan.kill_every_s, plan.seed, found.kills)
    async with hostile(service, keys, found, killer):
        await polite_phase(service, keys, asked, right, plan.seconds, found.beside)
    found.verdicts = await judge(service, key, asked, right, found)
    return found


async def wait_until_ready(service: Service) -> None:
    """Ask until the service is ready, and every model's own address reaches a replica: HAProxy learns of them last."""
    probes = [Request("/ready", method="GET"), *(Request(f"/models/{model}/health", method="GET") for model in MODELS)]
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        with suppress(OSError, EOFError), Connection(service.address) as connection:
            if all([(await connection.ask(probe, 5)).status == 200 for probe in probes]):
                return
        if service.process is not None and not is_alive(service.process):
            break
        await asyncio.sleep(0.25)
    raise RuntimeError(f"the service is not ready after {READY_WITHIN_S:g} s, or has ended")


async def polite_phase(
    service: Service, keys: Keys, asked: Sequence[User], right: Right, seconds: float, phase: Phase
) -> None:
    """Let the polite users ask for so long, with probes beside them."""
    cpu, started = time.process_time(), time.monotonic()
    until = started + seconds
    probes = [probe(model, service.address, found) for model, found in phase.probes.items()]
    async with beside([own_timer(phase.late), *probes]), asyncio.TaskGroup() as polite:
        for index, user in enumerate(asked):
            key = keys.polite[index % len(keys.polite)]
            polite.create_task(use(user, service.address, key, right, until, phase.samples))
    phase.seconds = time.monotonic() - started
    phase.cpu = (time.process_time() - cpu) / phase.seconds


@asynccontextmanager
async def beside(work: Sequence[Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    """Run what never ends by itself until left."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


@asynccontextmanager
async def hostile(service: Service, keys: Keys, found: Run, killer: Killer) -> AsyncGenerator[None, None]:
    """Attack from sixteen clients, two slow sockets of each kind, and kill replicas, until left."""
    slow = slow_kinds() * 2
    taking_turns = found.kinds[: len(found.kinds) - len(slow_kinds())]
    targets = [Target(service.address, key) for key in keys.hostile]
    work = [
        hostile_client(taking_turns, targets[index % len(targets)], found.plan.seed + index, found.tally)
        for index in range(HOSTILE_CLIENTS)
    ]
    work += [
        slow_socket(kind, targets[index % len(targets)], found.plan.seed + index, found.tally)
        for index, kind in enumerate(slow)
    ]
    if service.is_ours and found.plan.kill_every_s:
        work.append(killer.run())
    async with beside(work):
        yield


async def usage_before(service: Service) -> list[Usage]:
    """Return the most that each process holds while nobody asks."""
    await asyncio.sleep(QUIET_S)
    samples = []
    until = time.monotonic() + QUIET_S
    while time.monotonic() < until:
        await asyncio.sleep(LOOK_EVERY_S)
        samples.append(service.usage())
    return most(samples)


async def judge(service: Service, key: str | None, asked: Sequence[User], right: Right, found: Run) -> list[Verdict]:
    """Wait until nothing is held, ask every question once more, and wait until all is as before, or for long enough."""
    until = time.monotonic() + found.plan.settle_s

    async def of_slots() -> list[Verdict]:
        return [await slots_verdict(service, key)]

    async def of_processes() -> list[Verdict]:
        found.after = service.usage()
        compared = found.before, found.after
        return [verdicts.memory_as_before(*compared), verdicts.descriptors_as_before(*compared)]

    slots = await settled(of_slots, until)
    afterwards = verdicts.still_right(await ask_all_once(asked, service.address, key, right))
    processes = await settled(of_processes, max(until, time.monotonic() + found.plan.settle_s / 2))
    return [
        verdicts.nothing_wrong(found.beside.samples),
        verdicts.errors_only_near_kills(found.beside.samples, found.kills),
        verdicts.p99_ratio(found.alone.samples, found.beside.samples),
        verdicts.p99_ratio_by_user(found.alone.samples, found.beside.samples),
        *slots,
        afterwards,
        *processes,
        verdicts.hostile_answered(found.kinds, found.tally, found.kills),
        verdicts.rays_own(found.before, found.after),
        verdicts.replicas_killed(
            found.kills, found.before, found.after, is_wanted=service.is_ours and found.plan.kill_every_s > 0
        ),
    ]


async def settled(look: Callable[[], Awaitable[list[Verdict]]], until: float) -> list[Verdict]:
    """Look again and again until all holds, or until then (`time.monotonic()`)."""
    while True:
        seen = await look()
        if all(verdict.holds is not False for verdict in seen) or time.monotonic() > until:
            return seen
        await asyncio.sleep(LOOK_EVERY_S)


async def slots_verdict(service: Service, key: str | None) -> Verdict:
    """Read what is held from the metrics page."""
    try:
        return verdicts.nothing_held(held(await metrics_page(service.address, key)))
    except (OSError, EOFError):
        return verdicts.nothing_held(None)
