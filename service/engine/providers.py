"""What may compute a graph: ONNX Runtime's own operators, CUDA's, OpenVINO's, or ours."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Literal

import onnxruntime

from service.engine.native.library import NoLibrary, find_library, instructions_of

logger = logging.getLogger(__name__)

Provider = Literal["cpu", "cuda", "openvino"]
CPU, CUDA, OPENVINO = "CPUExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider"


class DeviceUnavailable(RuntimeError):
    """A model asks for a GPU that is not there."""


def has_cuda() -> bool:
    """Whether the installed ONNX Runtime was built for CUDA; whether a device is there only a session shows."""
    return CUDA in onnxruntime.get_available_providers()


@cache
def openvino_processors() -> tuple[onnxruntime.OrtEpDevice, ...]:
    """Return the processor as OpenVINO's plugin for ONNX Runtime knows it, if it is installed and takes this one."""
    try:
        import onnxruntime_ep_openvino as plugin
    except ImportError:
        return ()
    try:
        onnxruntime.register_execution_provider_library(OPENVINO, plugin.get_library_path())
    except Exception as error:  # ONNX Runtime's own kinds, as of a plugin that is made for another version
        logger.warning("OpenVINO's plugin for ONNX Runtime could not be loaded: %s", error)
        return ()
    processor = onnxruntime.OrtHardwareDeviceType.CPU
    return tuple(
        each for each in onnxruntime.get_ep_devices() if each.ep_name == OPENVINO and each.device.type == processor
    )


def has_openvino() -> bool:
    """Whether OpenVINO's plugin for ONNX Runtime is installed, and takes this machine's processor."""
    return bool(openvino_processors())


@cache
def preload_cuda() -> None:
    """Load CUDA's libraries out of NVIDIA's Python packages, if they are installed so; else the system's are found."""
    onnxruntime.preload_dlls()


def runtime_version() -> str:
    """Return the version of the installed ONNX Runtime."""
    version: str = onnxruntime.__version__
    return version


@cache
def native_library() -> Path | None:
    """Return the library of our own operators, if it can be had and takes this processor; the log says why not."""
    try:
        library = find_library(lambda path: onnxruntime.SessionOptions().register_custom_ops_library(str(path)))
        logger.info("our own operators multiply integers of 8 bits, attend and draw (%s)", instructions_of(library))
        return library
    except NoLibrary as reason:
        logger.info(
            "ONNX Runtime's operators multiply and attend, and NumPy draws tokens, not our own operators: %s", reason
        )
        return None
