"""A graph opened by ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@dataclass(frozen=True)
class SessionOptions:
    """How sessions use the machine.

    `threads` 0 means as many as this process may use. `spin_us`: how long a thread that has run out of work looks for
    more before it sleeps. A step is hundreds of short operators, and waking a thread for each costs more than many of
    them; a tenth of a millisecond bridges them, and leaves the cores to others as soon as a step is over. 0: sleep at
    once. `cuda`: run on the device that this process sees, with at most `gpu_memory_bytes` of its memory in a session's
    arena (0: no bound); `cpu_fallback` allows the CPU where there is none.
    """

    threads: int = 0
    spin_us: int = 100
    cuda: bool = False
    gpu_memory_bytes: int = 0
    cpu_fallback: bool = False

    def providers(self) -> list[str | tuple[str, dict[str, str]]]:
        """Return what ONNX Runtime may run on, the preferred first."""
        cuda = {"device_id": "0", "arena_extend_strategy": "kSameAsRequested"}
        if self.gpu_memory_bytes:
            cuda["gpu_mem_limit"] = str(self.gpu_memory_bytes)
        wanted = self.cuda and CUDA in onnxruntime.get_available_providers()
        return [(CUDA, cuda), CPU] if wanted else [CPU]


class DeviceUnavailable(RuntimeError):
    """A model asks for a GPU that is not there."""


def usable_cores() -> int:
    """Return the cores this process may use: its affinity, and its cgroup's quota rounded up (cgroup v2, then v1)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _cgroup_quota() or cores))


def _cgroup_quota() -> int | None:
    for quota_file, period_file in (
        ("/sys/fs/cgroup/cpu.max", None),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
    ):
        try:
            words = Path(quota_file).read_text().split()
            quota, period = words if period_file is None else (words[0], Path(period_file).read_text())
            if quota.isdigit():
                return -(-int(quota) // int(period))
        except (OSError, ValueError):
            continue
    return None


class Session:
    """One graph, run by the thread that calls; not to be shared by two threads at a time."""

    def __init__(self, path: Path, options: SessionOptions) -> None:
        session_options = onnxruntime.SessionOptions()
        session_options.intra_op_num_threads = options.threads or usable_cores()
        session_options.inter_op_num_threads = 1
        session_options.add_session_config_entry("session.intra_op.allow_spinning", "1" if options.spin_us else "0")
        session_options.add_session_config_entry("session.intra_op.spin_duration_us", str(options.spin_us))
        # A memory pattern is kept for every shape that was ever run; a ragged batch has a new one at each step.
        session_options.enable_mem_pattern = False
        session_options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            path,
            session_options,
            providers=options.providers(),
            # Add and norm in one operator is slower than apart: it is not vectorised.
            disabled_optimizers=["SkipLayerNormFusion"],
        )
        # Where the provider is installed, but its libraries or the driver are not, the CPU is taken in silence.
        if options.cuda and not options.cpu_fallback and CUDA not in self._session.get_providers():
            raise DeviceUnavailable(
                f"num_gpus asks for CUDA, and ONNX Runtime has only {', '.join(self._session.get_providers())} here; "
                "install onnxruntime-gpu with CUDA's libraries, or allow the CPU with cpu_fallback: true"
            )

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Return the named outputs."""
        answers: list[Array] = self._session.run(list(outputs), dict(inputs))
        return answers

    def bound(self) -> BoundSession:
        """Return a form of this session that runs on memory of the caller's."""
        return BoundSession(self._session)


class BoundSession:
    """A graph on the caller's own memory, bound once and run many times; arrays must be C-contiguous.

    What is bound must stay alive, and is kept so here.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._bound: dict[str, Array] = {}

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Read inputs from these arrays and write outputs into these; one array may be both."""
        for bind, arrays in ((self._binding.bind_input, inputs), (self._binding.bind_output, outputs)):
            for name, array in arrays.items():
                bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._bound |= {**inputs, **{f"{name} (out)": array for name, array in outputs.items()}}

    def run(self) -> None:
        """Run the graph on what is bound."""
        self._session.run_with_iobinding(self._binding)
