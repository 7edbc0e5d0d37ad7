"""The scenarios: nodes come and go with the load, a node dies, the head dies, a model is replaced."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.chaos import verdicts
from loadtests.chaos.cluster import RUNNING, Cluster, Status, is_up
from loadtests.chaos.load import Asking, Step, askers, load
from loadtests.chaos.nodes import NodeType
from loadtests.chaos.watch import Found, watch
from loadtests.hostile.phases import beside
from loadtests.hostile.polite import User, right_answers
from loadtests.hostile.processes import PACKAGES
from loadtests.hostile.verdicts import Verdict, nothing_wrong
from loadtests.hostile.wire import Connection, Request
from service.replica_groups import GATEWAY

CPU, GPU = "cpu", "gpu"
WORKERS = {CPU: NodeType({"CPU": 2}, 3, 3)}  # one more than replicas, so that one that dies leaves room
WITH_GPUS = {CPU: NodeType({"CPU": 2}, 1, 1), GPU: NodeType({"CPU": 2, "GPU": 1}, 0, 2)}
REPLICAS = {"sentiment": 2, "stories": 2, GATEWAY: 2}
WATCHED = "stories"
HALVES = 2  # replicas that share a device
BEFORE_S = 20.0  # under load, until something happens
HEAD_AWAY_S = 5.0  # until Kubernetes has started another container in its place
SETTLE_S = 5.0  # for the entrance to learn of every node
EMPTY_WITHIN_S = 300.0
TOP = 20  # users at the highest load
ASLEEP: dict[str, float] = {
    **{"min_replicas": 0, "max_replicas": 4, "ongoing_requests": 4, "upscale_delay_s": 1},
    **{"downscale_delay_s": 5, "downscale_to_zero_delay_s": 10, "hold_s": 10},
}


@dataclass(frozen=True)
class Plan:
    """How long everything takes, in seconds, and how many users there are."""

    seconds: float = 100.0  # of a scenario in which something dies
    roll_s: float = 180.0
    step_s: float = 30.0  # of each step of the load under which nodes come and go
    users: int = 6


Happening = Callable[[Found], Coroutine[Any, Any, None]]


def models(version: Path | None = None) -> list[dict[str, Any]]:
    """Return the models file of the scenarios in which something dies, with another version of `sentiment`."""
    return [
        {"package": str(version or PACKAGES / "sentiment"), "threads": 1},
        {"package": str(PACKAGES / "stories"), "threads": 1},
    ]


async def prepare(cluster: Cluster) -> Asking:
    """Bring up two replicas of each model, and ask what is right."""
    cluster.apply(models(), at_least=2)
    await asyncio.to_thread(cluster.wait, "all replicas run", lambda status: is_up(status, REPLICAS))
    await until_asked(cluster, "/ready", *(f"/models/{name}/health" for name in REPLICAS if name != GATEWAY))
    return await ask_first(cluster, askers(tuple(REPLICAS)))


async def ask_first(cluster: Cluster, asked: Sequence[User]) -> Asking:
    """Ask every question, one after another, to know what is right."""
    address, key = cluster.address, cluster.keys.polite[0]
    return Asking(asked, address, key, await right_answers(asked, address, key))


async def until_asked(cluster: Cluster, *paths: str, within_s: float = 60.0) -> None:
    """Wait until the entrance hands requests on; raises `RuntimeError`."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(OSError, EOFError), Connection(cluster.address) as connection:
            if all([(await connection.ask(Request(path, method="GET"), 10)).status == 200 for path in paths]):
                await asyncio.sleep(SETTLE_S)
                return
        await asyncio.sleep(0.5)
    raise RuntimeError(f"{', '.join(paths)} are not answered after {within_s:g} s")


async def under_load(name: str, cluster: Cluster, asking: Asking, steps: Sequence[Step], happening: Happening) -> Found:
    """Let something happen while users ask."""
    found = Found(name, time.monotonic())
    at = found.started
    for step in steps:
        found.users.append((at, step.users))
        at += step.seconds
    found.users.append((at, 0))
    async with beside([watch(cluster, WATCHED, found.looks)]), asyncio.TaskGroup() as group:
        group.create_task(load(steps, asking, found.samples))
        group.create_task(happening(found))
    found.verdicts.append(nothing_wrong(found.samples))
    return found


async def node_dies(cluster: Cluster, asking: Asking, plan: Plan, *, unplugged: bool = False) -> Found:
    """Kill a node that has a replica of the model, with everything on it; Ray's autoscaler rents another one."""
    killed_at, gone_at, back_at = 0.0, 0.0, None

    async def happening(found: Found) -> None:
        nonlocal killed_at, gone_at, back_at
        await asyncio.sleep(BEFORE_S)
        before = await asyncio.to_thread(cluster.status)
        victim = next(iter(before.running(WATCHED).values()))
        dead = {replica for name in REPLICAS for replica, ip in before.running(name).items() if ip == victim}
        (name,) = [name for name, rented in cluster.cloud.rented.items() if rented.host.ip == victim]
        killed_at = found.note("node unplugged" if unplugged else "node killed")
        await asyncio.to_thread(cluster.cloud.kill, name, unplugged=unplugged)
        gone_at = time.monotonic()
        back_at = await _back(cluster, found, lambda status: is_up(status, REPLICAS, dead), plan.seconds - BEFORE_S)

    name = "a node loses its power" if unplugged else "a node is killed"
    found = await under_load(name, cluster, asking, [Step(plan.users, plan.seconds)], happening)
    told_within_s = verdicts.NOTICED_WITHIN_S if unplugged else verdicts.TOLD_WITHIN_S
    lost = verdicts.lost_with_it(found.samples, killed_at, gone_at, told_within_s)
    return _judged(found, lost, verdicts.recovered("all replicas run again", killed_at, back_at))


async def head_dies(cluster: Cluster, asking: Asking, plan: Plan) -> Found:
    """Kill the head, which comes back at the same address and finds its state in Redis."""
    killed_at, gone_at, back_at = 0.0, 0.0, None
    before, after = Status(), Status()

    async def happening(found: Found) -> None:
        nonlocal killed_at, gone_at, back_at, before, after
        await asyncio.sleep(BEFORE_S)
        before = await asyncio.to_thread(cluster.status)
        killed_at = found.note("head killed")
        await asyncio.to_thread(cluster.cloud.kill, cluster.cloud.head())
        gone_at = time.monotonic()
        await asyncio.sleep(HEAD_AWAY_S)
        await asyncio.to_thread(cluster.cloud.start_head)
        back_at = await _back(cluster, found, lambda status: is_up(status, REPLICAS), plan.seconds - BEFORE_S)
        with suppress(OSError):
            after = await asyncio.to_thread(cluster.status)

    found = await under_load("the head is killed", cluster, asking, [Step(plan.users, plan.seconds)], happening)
    return _judged(
        found,
        verdicts.lost_with_it(found.samples, killed_at, gone_at),
        verdicts.recovered(f"Serve's controller is back (the head was away for {HEAD_AWAY_S:g} s)", killed_at, back_at),
        verdicts.same_replicas(before, after, tuple(REPLICAS)),
    )


async def _back(cluster: Cluster, found: Found, holds: Callable[[Status], bool], within_s: float) -> float | None:
    """Return when it holds, or None."""
    try:
        await asyncio.to_thread(cluster.wait, "as before", holds, within_s)
    except RuntimeError:
        return None
    return found.note("as before")


def _judged(found: Found, *verdicts_: Verdict) -> Found:
    found.verdicts += [*verdicts_, verdicts.longest_answer(found.samples)]
    return found


async def model_changes(cluster: Cluster, asking: Asking, plan: Plan) -> Found:
    """Apply another version of a model: its replicas, and those of the gateway, are replaced one after another."""
    applied_at, done_at = 0.0, None

    async def happening(found: Found) -> None:
        nonlocal applied_at, done_at
        await asyncio.sleep(BEFORE_S)
        before = await asyncio.to_thread(cluster.status)
        old = {*before.running("sentiment"), *before.running(GATEWAY)}
        version = Path(shutil.copytree(PACKAGES / "sentiment", cluster.folder / "sentiment-2"))
        applied_at = found.note("another version applied")
        await asyncio.to_thread(cluster.apply, models(version), 2)
        done_at = await _back(cluster, found, lambda status: is_up(status, REPLICAS, old), plan.roll_s - BEFORE_S)

    found = await under_load("a model is replaced", cluster, asking, [Step(plan.users, plan.roll_s)], happening)
    found.verdicts += [
        verdicts.none_failed(found.samples),
        verdicts.recovered("all replicas are of the new version", applied_at, done_at),
        verdicts.longest_answer(found.samples),
    ]
    return found


async def nodes_come_and_go(cluster: Cluster, plan: Plan) -> Found:
    """Wake a model that sleeps on no node at all, load it until it has several, and leave it until it has none."""
    model = {"package": str(PACKAGES / WATCHED), "threads": 1, "num_gpus": 1 / HALVES, "cpu_fallback": True}
    cluster.apply([{**model, "autoscaling": ASLEEP}], at_least=1)
    awake = lambda status: status.applications.get(WATCHED) == RUNNING and is_up(status, {GATEWAY: 1})  # noqa: E731
    await asyncio.to_thread(cluster.wait, "the gateway runs", awake)
    await until_asked(cluster, "/ready")
    found = Found("nodes come and go", time.monotonic())
    steps = [Step(round(TOP * share), plan.step_s) for share in (0.1, 0.5, 1, 1, 1, 0.5, 0.1)]
    async with beside([watch(cluster, WATCHED, found.looks)]):
        await asyncio.sleep(SETTLE_S)
        woken_at = found.note("first request")
        asking = await ask_first(cluster, askers([WATCHED]))
        first_s = found.note("load begins") - woken_at
        for place, step in enumerate(steps):
            found.users.append((time.monotonic() + place * plan.step_s, step.users))
        await load(steps, asking, found.samples)
        found.users.append((found.note("load ends"), 0))
        with suppress(RuntimeError):  # the verdict says it
            await asyncio.to_thread(
                cluster.wait, "no node is left", lambda _: not cluster.cloud.counts()[GPU], EMPTY_WITHIN_S
            )
        await asyncio.sleep(SETTLE_S)
    found.verdicts = [
        nothing_wrong(found.samples),
        verdicts.none_failed(found.samples),
        verdicts.nodes_came_and_went(found.looks, GPU, at_least=WITH_GPUS[GPU].max_workers),
        verdicts.replicas_spread(found.looks, at_most=HALVES),
        Verdict("the first questions, which wake it", None, f"answered after {first_s:.1f} s"),
        verdicts.longest_answer(found.samples),
    ]
    return found
