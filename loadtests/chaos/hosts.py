"""Hosts on one machine: each has its own network, its own processes and its own /tmp, and can be killed as a whole.

A host is a network namespace on a bridge, in which one command runs as the first process of a PID namespace: when it is
killed, the kernel ends all others. So every host has its own ports, as Ray and HAProxy expect of one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from loadtests.machine import ROOT

BRIDGE = "trifold-chaos"
NETWORK = "10.77.0"  # its first address is this machine's own
MACHINE = f"{NETWORK}.1"
NUMBERS = range(10, 26)  # of hosts at a time: the last part of their addresses
# As the first process of the new namespaces: /tmp becomes the host's own folder.
ENTER = 'mount --bind "$0" /tmp && exec "$@"'


@dataclass(frozen=True)
class Host:
    """One host and its first process."""

    number: int
    process: subprocess.Popen[bytes]

    @property
    def ip(self) -> str:
        """Its address on the bridge."""
        return address_of(self.number)

    def is_alive(self) -> bool:
        """Whether its first process runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End all of its processes with SIGKILL, and when all are gone its network, as Kubernetes does with a pod's."""
        processes = []
        with suppress(psutil.NoSuchProcess):
            processes = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()  # unshare, which takes the first process with it, and that all others
        self.process.wait()
        psutil.wait_procs(processes, timeout=5)
        remove_network(self.number)

    def unplug(self) -> None:
        """Cut the network first, so that nobody is told, as when a machine loses its power; then kill."""
        ip("link", "set", _link(self.number), "down")
        self.kill()

    def stop(self, within_s: float) -> None:
        """Ask its first process to end, as Kubernetes does; kill what has not ended by then."""
        with suppress(psutil.NoSuchProcess):
            for first in psutil.Process(self.process.pid).children():
                first.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
        self.kill()


def address_of(number: int) -> str:
    """Return the address of a host."""
    return f"{NETWORK}.{number}"


def _namespace(number: int) -> str:
    return f"{BRIDGE}-{number}"


def _link(number: int) -> str:
    return f"trifold-{number}"


@contextmanager
def bridge() -> Iterator[None]:
    """Make the network that hosts are plugged into; raises `RuntimeError` where that is not allowed."""
    missing = [program for program in ("ip", "unshare", "mount") if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        raise RuntimeError(f"hosts need root, and iproute2 and util-linux; missing: {', '.join(missing) or 'root'}")
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
    except subprocess.CalledProcessError:
        raise RuntimeError(f"the bridge {BRIDGE} cannot be made; is there one from another run? ip link") from None
    try:
        ip("addr", "add", f"{MACHINE}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        yield
    finally:
        ip("link", "del", BRIDGE)


def start(number: int, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Host:
    """Start a host that runs a command, with `folder` for its /tmp and its log."""
    namespace, link = _namespace(number), _link(number)
    ip("netns", "add", namespace)
    ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("link", "set", link, "master", BRIDGE, "up")
    ip("-n", namespace, "addr", "add", f"{address_of(number)}/24", "dev", "eth0")
    for inner in ("lo", "eth0"):
        ip("-n", namespace, "link", "set", inner, "up")
    (folder / "tmp").mkdir(parents=True)
    isolated = ["ip", "netns", "exec", namespace, "unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*isolated, "--kill-child=KILL", "sh", "-c", ENTER, str(folder / "tmp"), *command],
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for this process, which then ends the hosts
        )
    return Host(number, process)


def remove_network(number: int) -> None:
    """Remove a host's network, if it is there."""
    with suppress(subprocess.CalledProcessError):
        ip("netns", "del", _namespace(number))
    with suppress(subprocess.CalledProcessError):  # else it would linger for as long as a socket of a dead process
        ip("link", "del", _link(number))


def ip(*arguments: str) -> None:
    """Run iproute2; raises `CalledProcessError`."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
