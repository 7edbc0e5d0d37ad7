"""What can be known to be wrong before Ray starts, whose replicas would tell it late and in a traceback."""

from __future__ import annotations

import logging
import math
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations
from pathlib import Path

from model.package import Manifest
from model.package.manifest import major_and_minor
from service.addresses import authority
from service.keys import configured_keys
from service.machine import most_processes
from service.models_file import RAY_PART, ModelSettings
from service.ports import Ports, bind_error
from service.replica_groups import GATEWAY_CPUS, ReplicaGroup, replica_groups, takes_gateway
from service.settings import Settings
from service.settings_errors import SettingsError
from service.tracing import Tracing

logger = logging.getLogger("trifold")

SHORT_PLACE = "/tmp"  # noqa: S108  # of folders for sockets, whose names are bounded; nobody else may enter them
FEWEST_FILES = 1024  # open ones, with which Ray and an HAProxy of few connections were tried
FEWEST_PROCESSES = 512  # and threads: with one model on two cores some 300 were counted
FEWEST_BYTES = 64 * 2**20  # of logs, sockets and HAProxy's files, until Ray has started
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # where Ray has its objects on Linux
PORTS = ("port", "metrics_port", "ray_metrics_port")  # that the settings name; 0 is none, or any


def check_start(settings: Settings, models: Sequence[ModelSettings]) -> list[ReplicaGroup]:
    """Return the models in groups; raises `SettingsError`, `PackageError` for what this machine could not serve."""
    settings.check_exposure(settings.host)
    check_process()
    configured_keys(settings)
    Tracing.of(settings).close()
    groups = replica_groups(models)
    for model in models:
        manifest = model.manifest()
        check_installed_runtime(model.package, manifest)
        manifest.check_files(model.package)
    check_devices(models)
    check_caches(models)
    check_metrics_dir(settings)
    return groups


def check_process() -> None:
    """Refuse what no program of Ray's could start in, and would tell in a traceback; raises `SettingsError`."""
    try:
        Path.cwd()
    except OSError:
        raise SettingsError("the working folder is gone; start from another one") from None
    if (files := open_files()) < FEWEST_FILES:
        raise SettingsError(
            f"a process may open {files} files here, and Ray needs {FEWEST_FILES}; raise it (ulimit -Hn, LimitNOFILE)"
        )
    if (processes := most_processes()) < FEWEST_PROCESSES:
        raise SettingsError(
            f"there may be {processes} processes and threads here, and Ray needs {FEWEST_PROCESSES}; raise it "
            "(ulimit -u, TasksMax, --pids-limit)"
        )
    if sys.platform == "linux" and not SHARED_MEMORY.is_dir():
        raise SettingsError(f"there is no {SHARED_MEMORY}; mount a tmpfs there")
    for folder in {temporary_place(), SHORT_PLACE}:
        if (free := shutil.disk_usage(folder).free) < FEWEST_BYTES:
            raise SettingsError(
                f"{folder} has {free // 2**20} MiB left, and Ray or HAProxy writes {FEWEST_BYTES // 2**20} there; "
                "make room"
            )


def temporary_place() -> str:
    """Return where temporary files go; raises `SettingsError` where none can be written."""
    try:
        return tempfile.gettempdir()
    except OSError:
        raise SettingsError("no temporary files can be written to TMPDIR or /tmp; mount a tmpfs there") from None


def open_files() -> int:
    """Return how many files a process may open at most, as the system has it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else most


def check_metrics_dir(settings: Settings) -> None:
    """Refuse a folder in which no counts can be kept; raises `SettingsError`."""
    folder = settings.metrics_dir
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingsError(f"metrics_dir: {error.filename or folder}: {error.strerror}") from None


def check_cpus(groups: Sequence[ReplicaGroup], cpus: float) -> None:
    """Refuse models that together reserve more CPUs than there are; raises `SettingsError`.

    Ray would wait for ever for more to appear. Of the models that sleep only the largest is counted. Call it after Ray
    has started: Ray may be configured with another number of CPUs than the machine has.
    """
    asleep = [group.settings.num_cpus for group in groups if not group.settings.autoscaling.min_replicas]
    reserved = sum(group.settings.num_cpus * group.settings.autoscaling.min_replicas for group in groups)
    reserved += max(asleep, default=0)
    gateway = 0 if takes_gateway(groups) else GATEWAY_CPUS
    if reserved + gateway > cpus + RAY_PART:
        raise SettingsError(
            f"num_cpus: the models reserve {reserved:g} CPUs in all, and the gateway {gateway:g}; this machine has "
            f"{cpus:g}. Give them less (num_cpus in the models file), or let models share a replica"
        )


def check_caches(models: Sequence[ModelSettings]) -> None:
    """Refuse a model of which not even one sequence fits into its KV cache; raises `PackageError`."""
    manifests = [(model, model.manifest()) for model in models]
    caching = [(model, manifest) for model, manifest in manifests if manifest.cache is not None]
    if not caching:
        return
    from service.tasks.kv_budget import check_kv_cache, warn_of_budgets  # with ONNX Runtime, which is for replicas

    for model, manifest in caching:
        check_kv_cache(model, manifest)
    warn_of_budgets([model for model, _ in caching])


def check_installed_runtime(package: Path, manifest: Manifest) -> None:
    """Refuse a package that needs a newer ONNX Runtime; raises `PackageError`.

    It is not imported here, which takes a replica's memory and time: whichever distributions of it are installed say
    their versions, and where none can be read the replica finds out.
    """
    versions = []
    for name in ("onnxruntime", "onnxruntime-gpu"):
        with suppress(PackageNotFoundError):
            versions.append(version(name) or "")
    known = [found for found in versions if re.match(r"\d+\.\d+(\.|$)", found)]
    if known and len(known) == len(versions):
        manifest.check_runtime(package, max(known, key=major_and_minor))


def check_devices(models: Sequence[ModelSettings]) -> None:
    """Refuse a model for a GPU where ONNX Runtime has no CUDA; raises `SettingsError`."""
    asking = [model for model in models if model.num_gpus and not model.cpu_fallback]
    if not asking:
        return
    from service.engine.providers import has_cuda  # ONNX Runtime is for replicas, unless a model needs to know
    from service.tasks.devices import wants_device

    wanting = [model for model in asking if wants_device(model)]
    if wanting and not has_cuda():
        raise SettingsError(
            f"{wanting[0].package}: num_gpus asks for CUDA, which the installed ONNX Runtime has not; "
            "put onnxruntime-gpu in its place (pip uninstall -y onnxruntime; pip install --no-deps onnxruntime-gpu), "
            "set num_gpus to 0, or allow the CPU with cpu_fallback: true"
        )


def place_on_devices(groups: list[ReplicaGroup], gpus: float) -> list[ReplicaGroup]:
    """Move models that may to the CPU where GPUs are too few; raises `SettingsError` for those that may not.

    Ray would wait for ever for a device to appear. A fraction lies on one device.
    """
    placed: list[ReplicaGroup] = []
    left = [min(1.0, gpus - device) for device in range(math.ceil(gpus))]
    for group in groups:
        models, settings = group.models, group.settings
        replicas = max(1, settings.autoscaling.min_replicas)
        fitting = _parts(left, settings.num_gpus, replicas)
        if fitting is not None:
            left = fitting
        elif settings.cpu_fallback:
            logger.warning("%s runs on the CPU: its GPU is not there", group.name)
            models = tuple(model.model_copy(update={"num_gpus": 0}) for model in models)
        else:
            parts = ", ".join(f"{part:g}" for part in left) or "none"
            raise SettingsError(
                f"{settings.package}: num_gpus is {settings.num_gpus:g} for each of {replicas} replicas, and of GPUs "
                f"are left: {parts}; give it fewer, set it to 0, or allow the CPU with cpu_fallback: true"
            )
        placed.append(ReplicaGroup(group.name, models))
    return placed


def _parts(left: list[float], needed: float, replicas: int) -> list[float] | None:
    """Return what is left of each device once some replicas have their part of one, or whole ones; None: too little."""
    left = list(left)
    for _ in range(replicas):
        for part in [needed] if needed <= 1 else [1.0] * math.ceil(needed):
            with_room = [place for place, free in enumerate(left) if part <= free + RAY_PART / 2]
            device = min(with_room, key=left.__getitem__, default=None)  # as Ray does it
            if device is None and part:
                return None
            if device is not None:
                left[device] -= part
    return left


def check_ports(settings: Settings, ours: Ports) -> None:
    """Say so before Ray starts, whose own answer to a busy port is long and late; raises `SettingsError`.

    A service goes on without its metrics port: it has another page of metrics, and takes the port once it is free.
    """
    if "%" in settings.host:
        raise SettingsError("host: HAProxy knows no zones of addresses (%); listen on another address, or on all (::)")
    ports = {name: port for name in PORTS if (port := getattr(settings, name))}
    for (name, port), (other, same) in combinations(ports.items(), 2):
        if port == same:
            raise SettingsError(f"{name} and {other} are both {port}; choose another, as with TRIFOLD_{name.upper()}")
    problem = bind_error(settings.host, settings.port)
    if problem is None and not ours.claim(settings.port, settings.host):
        problem = f"{authority(settings.host, settings.port)} is another service's, which starts or stops"
    if problem:
        raise SettingsError(f"{problem}; choose another with --host or --port, or TRIFOLD_HOST or TRIFOLD_PORT")
    if settings.metrics_port and (problem := bind_error(settings.host, settings.metrics_port)):
        logger.warning("%s, so metrics are not served there; choose another with TRIFOLD_METRICS_PORT", problem)
