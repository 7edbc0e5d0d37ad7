"""A graph opened by ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class SessionOptions:
    """How sessions use the machine; `threads` 0 means as many as this process may use."""

    threads: int = 0


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
        # Spinning threads would take the cores from the other models' sessions and from the event loop.
        session_options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session_options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, session_options, providers=["CPUExecutionProvider"])

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Return the named outputs."""
        answers: list[Array] = self._session.run(list(outputs), dict(inputs))
        return answers

    def run_in_place(self, inputs: Mapping[str, Array], state: Mapping[str, tuple[str, Array]], output: str) -> Array:
        """Run with state that the graph updates in its own memory, and return one output.

        `state` maps an input's name to the output that replaces it, and to the array that holds both; an empty output
        name means the graph only reads. Arrays must be C-contiguous.
        """
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name, (updated, array) in state.items():
            place = ("cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
            binding.bind_input(name, *place)
            if updated:
                binding.bind_output(updated, *place)
        binding.bind_output(output, "cpu")
        self._session.run_with_iobinding(binding)
        answer: Array = binding.get_outputs()[-1].numpy()
        return np.ascontiguousarray(answer)
