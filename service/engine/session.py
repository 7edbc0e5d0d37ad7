"""A graph opened by ONNX Runtime."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any, Literal
from weakref import WeakSet, proxy

import numpy as np
import onnxruntime

from model.package.exact_sums import WEIGHTS_FOLDER, ask_for_exact_sums
from service.engine.arrays import Array, View
from service.engine.native.graph import NativeGraph, may_be_native, native_graph
from service.engine.priority import opened_to_compute
from service.engine.providers import (
    CPU,
    CUDA,
    OPENVINO,
    DeviceUnavailable,
    Provider,
    has_cuda,
    native_library,
    openvino_processors,
    preload_cuda,
)
from service.engine.teams import Teams, fewer_threads, size_of
from service.machine import usable_cores

logger = logging.getLogger(__name__)

_DEVICE = RLock()


@dataclass(frozen=True)
class SessionOptions:
    """How sessions use the machine.

    `threads` 0 means as many as this process may use, or fewer where those are faster (`teams.py`). `spin_us`: how long
    a thread that has run out of work looks for more before it sleeps. A step is hundreds of short operators, and waking
    a thread for each costs more than many of them; a tenth of a millisecond bridges them, and leaves the cores to
    others as soon as a step is over. 0: sleep at once. `cuda`: run on the device that this process sees, with at most
    `gpu_memory_bytes` of its memory in a session's arena (0: no bound); `cpu_fallback` allows the CPU where there is
    none. `openvino`: run on the processor by OpenVINO, which takes graphs of standard operators. `native`: multiply,
    attend and draw by operators of our own where the processor has the instructions for them. `half_cache`: let these
    keep keys and values in 16 bits.
    """

    threads: int = 0
    spin_us: int = 100
    cuda: bool = False
    gpu_memory_bytes: int = 0
    cpu_fallback: bool = False
    openvino: bool = False
    native: bool = True
    half_cache: bool = False

    def of_runtime(self) -> onnxruntime.SessionOptions:
        """Return ONNX Runtime's own options with these threads."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads or usable_cores()
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if self.spin_us else "0")
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(self.spin_us))
        options.log_severity_level = 3
        return options

    def providers(self, *, replays: bool = False) -> list[str | tuple[str, dict[str, str]]]:
        """Return what ONNX Runtime may run on, the preferred first; `replays`: as recorded CUDA graphs, where asked."""
        cuda = {"device_id": "0", "arena_extend_strategy": "kSameAsRequested"}
        if self.gpu_memory_bytes:
            cuda["gpu_mem_limit"] = str(self.gpu_memory_bytes)
        if replays:
            cuda["enable_cuda_graph"] = "1"
        wanted = self.cuda and has_cuda()
        return [(CUDA, cuda), CPU] if wanted else [CPU]


def _native(path: Path, *, half_cache: bool) -> NativeGraph | None:
    """Return a graph with our own operators, if it has anything for them and they can be had here."""
    try:
        if not may_be_native(path) or native_library() is None:
            return None
        return native_graph(path, half_cache=half_cache)
    except Exception:  # to be faster must not decide whether a model is served
        logger.warning("%s runs as it is: our own operators could not be put in", path, exc_info=True)
        return None


class Session:
    """One graph, run by the thread that calls, and by several at a time on arrays of their own."""

    def __init__(
        self, path: Path, options: SessionOptions, model: bytes | None = None, *, replays: bool = False
    ) -> None:
        """Open a graph's file; or `model`, which is what the file would hold, and whose weights may lie beside it.

        `replays`: bound runs may be recorded on a device and replayed, if all of the graph runs there.
        """
        cuda_is_there = options.cuda and has_cuda()
        if cuda_is_there:
            preload_cuda()
        self._native: NativeGraph | None = None
        self._shared: dict[str, onnxruntime.OrtValue] = {}  # its weights, which all that run it read
        if options.native and model is None and not options.openvino and not cuda_is_there:
            self._native = _native(path, half_cache=options.half_cache)
        try:
            if self._native is not None:
                self._shared = {name: _value_over(values) for name, values in self._native.weights.items()}
            self._session = opened_to_compute(
                lambda: self._opened(path, options, model, replays=replays and cuda_is_there)
            )
        except Exception:
            if self._native is None:
                raise
            logger.warning("%s runs as it is: with our own operators it could not be opened", path, exc_info=True)
            self._native, self._shared = None, {}
            self._session = opened_to_compute(lambda: self._opened(path, options, model, replays=False))
        providers = self._session.get_providers()
        # Where the provider is installed, but its libraries or the driver are not, the CPU is taken in silence.
        if options.cuda and not options.cpu_fallback and CUDA not in providers:
            raise DeviceUnavailable(
                f"num_gpus asks for CUDA, and ONNX Runtime has only {', '.join(providers)} here; "
                "install onnxruntime-gpu with CUDA's libraries, or allow the CPU with cpu_fallback: true"
            )
        self.provider: Provider = "cuda" if CUDA in providers else "openvino" if OPENVINO in providers else "cpu"
        self.device: Literal["cpu", "cuda"] = "cuda" if self.provider == "cuda" else "cpu"
        # What the providers are asked for is not asked for again of a session that was opened after a refusal.
        asked: Mapping[str, str] = self._session.get_provider_options().get(CUDA, {})
        self._replays = asked.get("enable_cuda_graph") == "1"
        self._run_options = self._once()
        threads = options.threads or usable_cores()
        is_chosen = not options.threads and self.provider == "cpu" and model is None
        self._bound: WeakSet[BoundSession] = WeakSet()
        this = proxy(self)  # a session that nobody has any more goes at once, with its weights
        # What is shared is not held again.
        weight_bytes = size_of(path) if self._native is None else self._native.own_bytes
        self._teams: Teams[onnxruntime.InferenceSession] = Teams(
            path,
            weight_bytes,
            self._session,
            fewer_threads(weight_bytes, threads) if is_chosen else [threads],
            lambda threads: this._opened(path, replace(options, threads=threads), None, replays=False),
        )

    @property
    def keeps_on_device(self) -> bool:
        """Whether memory that outlasts a run belongs on a device."""
        return self.device != "cpu"

    @property
    def has_half_cache(self) -> bool:
        """Whether its keys and values are kept in 16 bits, as was asked."""
        return self._native is not None and self._native.has_half_cache

    @property
    def takes_slots(self) -> bool:
        """Whether several of its rows may be tokens of one sequence: see `native.attention.SLOTS`."""
        return self._native is not None and self._native.takes_slots

    @property
    def turn(self) -> AbstractContextManager[object]:
        """What to hold while working on a device: one thread of a process at a time.

        A step that is being recorded is spoilt by whatever else the process asks of the device meanwhile.
        """
        return _DEVICE if self.keeps_on_device else nullcontext()

    def _opened(
        self, path: Path, options: SessionOptions, model: bytes | None, *, replays: bool
    ) -> onnxruntime.InferenceSession:
        session_options = options.of_runtime()
        # A memory pattern is kept for every shape that was ever run; a ragged batch has a new one at each step.
        session_options.enable_mem_pattern = False
        if self._native is not None:
            session_options.register_custom_ops_library(str(native_library()))
            for name, weight in self._shared.items():
                session_options.add_initializer(name, weight)
            model = self._native.model
        model = ask_for_exact_sums(session_options, model or path) or model
        if model is not None:
            folder = path.parent if self._native is None else path.resolve().parent
            session_options.add_session_config_entry(WEIGHTS_FOLDER, str(folder))
        if options.openvino:
            session_options.add_provider_for_devices(openvino_processors(), _openvino_options(options))
            return onnxruntime.InferenceSession(path if model is None else model, session_options)
        # On the processor, add and norm in one operator is slower than apart: it is not vectorised.
        slower = [] if options.cuda and has_cuda() else ["SkipLayerNormFusion"]
        try:
            return onnxruntime.InferenceSession(
                path if model is None else model,
                session_options,
                providers=options.providers(replays=replays),
                disabled_optimizers=slower,
                enable_fallback=0,  # to the processor, of which only a line on standard output would tell
            )
        except Exception as error:
            if replays:  # some operators may be the processor's, and then nothing can be recorded
                return self._opened(path, options, model, replays=False)
            if not (options.cuda and has_cuda()):
                raise
            if options.cpu_fallback:
                return self._opened(path, replace(options, cuda=False), model, replays=False)
            raise DeviceUnavailable(f"{path} could not be opened on CUDA: {error}") from error

    def _once(self) -> onnxruntime.RunOptions | None:
        """Return the options of a run that is not recorded."""
        return _recorded_as(NOT_RECORDED) if self._replays else None

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Return the named outputs."""
        shape = next(iter(inputs.values())).shape
        answers: list[Array] = self._teams.run(
            shape, lambda team: team.run(list(outputs), dict(inputs), self._run_options)
        )
        return answers

    def bound(self) -> BoundSession:
        """Return a form of this session that runs on memory of the caller's."""
        bound = BoundSession(self)
        self._bound.add(bound)
        return bound

    @contextmanager
    def shrinking(self) -> Iterator[None]:
        """Give back after each run what the largest before it needed; every run then takes its memory anew.

        Without an arena nothing would have to be given back, but large batches took a fifth longer. A device's arena
        keeps what it has: recorded runs point into it.
        """
        self._run_options = self._once() or onnxruntime.RunOptions()
        self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            with self._teams.shrinking():
                for bound in self._bound:
                    bound.forget_teams()
                yield
        finally:
            self._run_options = self._once()

    @property
    def replays(self) -> bool:
        """Whether bound runs can be recorded and replayed."""
        return self._replays

    def run_bound(self, bound: BoundSession, recorded_as: int | None = None) -> None:
        """Run on bound memory; `recorded_as`: record the run under this number, or replay what was recorded."""
        options = self._run_options if recorded_as is None else _recorded_as(recorded_as)
        self._teams.run(bound.shape, lambda team: team.run_with_iobinding(bound.binding(team), options))


class OperatorSession:
    """A small graph of our own operators, which is in no package."""

    def __init__(self, graph: bytes, library: Path, options: SessionOptions) -> None:
        """Open it with the operators of a library; raises ONNX Runtime's own errors."""
        of_runtime = options.of_runtime()
        of_runtime.register_custom_ops_library(str(library))
        self._session = opened_to_compute(lambda: onnxruntime.InferenceSession(graph, of_runtime, providers=[CPU]))

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return all outputs."""
        answers: list[Array] = self._session.run(None, dict(inputs))
        return answers


def _openvino_options(options: SessionOptions) -> dict[str, str]:
    """Return what OpenVINO is asked for: numbers of 16 bits where the processor multiplies them, and our threads.

    https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes/cpu-device.html
    """
    abilities = openvino_processors()[0].ep_metadata.get("OPTIMIZATION_CAPABILITIES", "").split()
    asked = {
        "INFERENCE_PRECISION_HINT": "bf16" if "BF16" in abilities else "f32",
        "INFERENCE_NUM_THREADS": options.threads or usable_cores(),
    }
    return {"load_config": json.dumps({"CPU": asked})}


def _value_over(array: Array) -> onnxruntime.OrtValue:
    """Return what ONNX Runtime reads an array by; it has no copy of it, but keeps it alive."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def memory_on(device: str, shape: Sequence[int], dtype: np.dtype[Any]) -> onnxruntime.OrtValue:
    """Take memory of a device, of no session's arena; raises ONNX Runtime's own error where there is none left."""
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype.type, device, 0)


NOT_RECORDED = -1  # ONNX Runtime's own number


def _recorded_as(number: int) -> onnxruntime.RunOptions:
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(number))
    return options


class BoundSession:
    """A graph on the caller's own memory, bound once and run many times; arrays must be C-contiguous.

    What is bound must stay alive, and is kept so here.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs: Mapping[str, Array | View] = {}
        self._outputs: Mapping[str, Array | View] = {}
        self._bindings: dict[onnxruntime.InferenceSession, onnxruntime.IOBinding] = {}
        self._stale: set[onnxruntime.InferenceSession] = set()  # bound to what was bound before

    @property
    def shape(self) -> Sequence[int]:
        """Of the first input."""
        return next(iter(self._inputs.values())).shape

    def bind(self, inputs: Mapping[str, Array | View], outputs: Mapping[str, Array | View]) -> None:
        """Read inputs from this memory and write outputs into this; the same may be both."""
        self._inputs, self._outputs = inputs, outputs
        self._stale.update(self._bindings)

    def forget_teams(self) -> None:
        """Hold none of those that run the graph, until they run it again."""
        self._bindings.clear()
        self._stale.clear()

    def binding(self, team: onnxruntime.InferenceSession) -> onnxruntime.IOBinding:
        """Return what is bound, for one of those that run the graph."""
        binding = self._bindings.get(team)
        if binding is None or team in self._stale:
            binding = self._bindings[team] = binding or team.io_binding()
            self._stale.discard(team)
            for bind, memory in ((binding.bind_input, self._inputs), (binding.bind_output, self._outputs)):
                for name, bound in memory.items():
                    view = bound if isinstance(bound, View) else View.of(bound)
                    bind(name, view.device, 0, view.dtype.type, view.shape, view.address)
        return binding

    def run(self, recorded_as: int | None = None) -> None:
        """Run the graph on what is bound; `recorded_as`: replay it under this number, once it was recorded so.

        What is replayed must be bound to the same memory as when it was recorded.
        """
        self._session.run_bound(self, recorded_as)
