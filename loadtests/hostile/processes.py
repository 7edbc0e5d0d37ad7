"""The service that is attacked: started here, watched from outside, its replicas killed now and then, and ended."""

from __future__ import annotations

import asyncio
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from deploy.monitoring.local import free_port
from loadtests.hostile.wire import Address
from service.keys import hash_of

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ROOT / "model" / "packages"
MODELS = ("sentiment", "spam", "topics", "embed", "entail", "entities", "answers", "fashion", "stories", "translate")
KILLED = ("stories", "sentiment", "translate")  # each has two replicas, one of which is killed in its turn
RAYS_OWN = {"dashboard", "gcs_server", "log_monitor", "monitor", "raylet"}
STRANGER = {"concurrent_requests": 4, "requests_per_minute": 600}  # what an operator grants one, by key and process
END_WITHIN_S = 180.0  # the service drains for as long as its deadline
CHILDREN_WITHIN_S = 10.0  # then those are killed that have not ended with it


@dataclass(frozen=True)
class Keys:
    """The API keys of both sides, given to their clients in turns; [None] where there are none."""

    polite: list[str | None]
    hostile: list[str | None]
    hostile_limits: Mapping[str, int] = field(default_factory=dict)  # of each hostile key; none: as for all others


def make_keys(which: str, hostile_limits: Mapping[str, int] | None = None) -> Keys:
    """Make keys: "sides", one for each side, "each", one for each client, or "none"."""
    if which == "none":
        return Keys([None], [None])
    polite, hostile = (8, 16) if which == "each" else (1, 1)
    return Keys(_random(polite), _random(hostile), hostile_limits or {})


def _random(count: int) -> list[str | None]:
    return [secrets.token_hex(16) for _ in range(count)]


@dataclass(frozen=True)
class Usage:
    """What one process holds."""

    role: str
    pid: int
    memory: int  # bytes of resident memory
    descriptors: int
    threads: int = 0

    @property
    def is_rays(self) -> bool:
        """Whether it is a process of Ray's own, and not one that runs this project's code, or HAProxy."""
        return self.role.startswith("ray::") or self.role in RAYS_OWN


@dataclass(frozen=True)
class Service:
    """A running service; without its process only what HTTP tells is known of it."""

    address: Address
    process: psutil.Process | None = None
    is_ours: bool = False  # started here, so that its replicas may be killed

    def replicas(self, model: str) -> list[psutil.Process]:
        """Return the processes of a model's replicas, of this service only."""
        return [process for role, process in self._processes() if role == f"replica {model}"]

    def usage(self) -> list[Usage]:
        """Return what each process holds now."""
        found = []
        for role, process in self._processes():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # it may end meanwhile
                found.append(
                    Usage(role, process.pid, process.memory_info().rss, process.num_fds(), process.num_threads())
                )
        return found

    def _processes(self) -> Iterator[tuple[str, psutil.Process]]:
        if self.process is not None:
            yield from processes_of(self.process)


def processes_of(service: psutil.Process) -> Iterator[tuple[str, psutil.Process]]:
    """Yield a service's process and all that it has started, each with what it is for."""
    yield "python -m service", service
    for child in service.children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            yield role_of(child), child


def role_of(process: psutil.Process) -> str:
    """Return what a process is for, from the name that it gave itself."""
    title = " ".join(process.cmdline()).strip()
    if replica := re.match(r"ray::ServeReplica:(\w+):(\w+)", title):
        application, deployment = replica.groups()
        return f"replica {application}" if deployment == "model" else application
    if title.startswith("ray::"):
        return re.split(r"[.( ]", title)[0]  # an actor's title goes on with what it does at the moment
    if (script := re.search(r"(\w+)\.py\b", title)) and process.name().startswith("python"):
        return script.group(1)
    return process.name()


@contextmanager
def started(keys: Keys, threads: int, **settings: Any) -> Iterator[Service]:
    """Run `python -m service` with the bundled models, each with these settings, on a free port until left."""
    with tempfile.TemporaryDirectory(prefix="trifold-hostile-") as name:
        folder, port = Path(name), free_port()
        (folder / "models.yaml").write_text(yaml.safe_dump({"models": models(threads=threads, **settings)}))
        command = [sys.executable, "-m", "service", "--port", str(port)]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(folder, keys),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A group of its own, as Ctrl-C is for this process, which then ends the service, but no session: Linux
                # shares the cores between sessions (autogroup), and this one's would be late by up to a second.
                process_group=0,
            )
        service = Service(Address("127.0.0.1", port), psutil.Process(process.pid), is_ours=True)
        try:
            yield service
        except (RuntimeError, OSError, EOFError) as error:
            tail = "\n".join((folder / "log").read_text().splitlines()[-20:])
            raise RuntimeError(f"{error or type(error).__name__}\nThe service's last lines:\n{tail}") from None
        finally:
            end(process)


def models(**settings: Any) -> list[dict[str, Any]]:
    """Return the bundled models as a models file has them, with settings; two replicas of those that are killed."""
    two = {"autoscaling": {"min_replicas": 2, "max_replicas": 2}}
    return [{"package": str(PACKAGES / model), **settings, **(two if model in KILLED else {})} for model in MODELS]


def environment(folder: Path, keys: Keys) -> dict[str, str]:
    """Return the service's environment: nothing of it is left to chance, and no port is a usual one."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("TRIFOLD_")}
    return {
        **given,
        "PYTHONPATH": str(ROOT),
        "TRIFOLD_MODELS_FILE": str(folder / "models.yaml"),
        "TRIFOLD_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        **_keys(folder, keys),
    }


def _keys(folder: Path, keys: Keys) -> dict[str, str]:
    """Hand the keys over by file, with a name for each."""
    entries = [*_entries("polite", keys.polite), *_entries("hostile", keys.hostile, **keys.hostile_limits)]
    if not entries:
        return {}
    (folder / "keys.yaml").write_text(yaml.safe_dump(entries))
    return {"TRIFOLD_API_KEYS_FILE": str(folder / "keys.yaml")}


def _entries(side: str, keys: Sequence[str | None], **limits: int) -> Iterator[dict[str, Any]]:
    for index, key in enumerate(keys):
        if key:
            yield {"name": f"{side}-{index}", "hash": hash_of(key), **limits}


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop the service, and kill by their pids whatever of it does not end."""
    if process.poll() is not None:
        return
    service = psutil.Process(process.pid)
    everything = [service, *service.children(recursive=True)]
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass  # killed below, as when the wait is interrupted
    finally:
        wait_until_gone(everything)
        for each in filter(is_alive, everything):
            with suppress(psutil.NoSuchProcess):
                each.kill()  # psutil makes sure that the pid is still that process's
        process.wait()
        wait_until_gone(everything)


def wait_until_gone(processes: Sequence[psutil.Process]) -> None:
    """Wait for processes to end, for as long as they are given."""
    deadline = time.monotonic() + CHILDREN_WITHIN_S
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)


def is_alive(process: psutil.Process) -> bool:
    """Tell whether a process still runs; one that has ended and that nobody has asked about does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True)
class Kill:
    """One replica that was killed."""

    at: float  # time.monotonic()
    model: str
    pid: int


@dataclass
class Killer:
    """Kills one replica after another, of models that have another one."""

    service: Service
    every_s: float
    seed: int = 0
    kills: list[Kill] = field(default_factory=list)

    async def run(self) -> None:
        """Kill without end, for the first time after half the interval."""
        rng = random.Random(self.seed)
        await asyncio.sleep(self.every_s / 2)
        while True:
            self.kill_one(rng)
            await asyncio.sleep(self.every_s)

    def kill_one(self, rng: random.Random) -> None:
        """Kill a replica of the model whose turn it is, or of the next one that has two."""
        assert self.service.is_ours, "bug: only replicas of a service that was started here are killed"
        turn = len(self.kills) % len(KILLED)
        killed = {kill.pid for kill in self.kills}  # one may take a moment to be gone
        for model in (*KILLED[turn:], *KILLED[:turn]):
            replicas = [replica for replica in self.service.replicas(model) if replica.pid not in killed]
            if len(replicas) > 1:
                victim = rng.choice(replicas)
                victim.kill()
                self.kills.append(Kill(time.monotonic(), model, victim.pid))
                return


def most(samples: list[list[Usage]]) -> list[Usage]:
    """Return the most that each process held in several looks at them."""
    found: dict[tuple[str, int], Usage] = {}
    for usage in (usage for sample in samples for usage in sample):
        before = found.get((usage.role, usage.pid), usage)
        memory, descriptors = max(before.memory, usage.memory), max(before.descriptors, usage.descriptors)
        found[usage.role, usage.pid] = Usage(usage.role, usage.pid, memory, descriptors)
    return list(found.values())


def by_role(usages: list[Usage]) -> Mapping[str, list[Usage]]:
    """Group processes by what they are for."""
    roles: dict[str, list[Usage]] = {}
    for usage in usages:
        roles.setdefault(usage.role, []).append(usage)
    return roles
