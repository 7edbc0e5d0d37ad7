"""Which models run on a GPU: those that ask for one, have a package for it, and find ONNX Runtime's provider.

CUDA's attention takes halves, and of products of small integers it has none: of other packages than those of float16
most would be computed on the processor, and all of it copied there and back.
"""

from __future__ import annotations

from model.package import PackageError
from service.engine.session import has_cuda
from service.settings import ModelSettings


def wants_device(model: ModelSettings) -> bool:
    """Whether a model's sessions are to be opened on a device."""
    return model.num_gpus > 0 and (not model.cpu_fallback or _is_for_devices(model))


def runs_on_device(model: ModelSettings) -> bool:
    """Whether ONNX Runtime has what such sessions need; whether a device is there only a session shows."""
    return wants_device(model) and has_cuda()


def check_precision(model: ModelSettings) -> None:
    """Refuse a package that a device would compute only in part, unless the CPU may; raises `PackageError`."""
    if wants_device(model) and not _is_for_devices(model):
        raise PackageError(
            f"{model.package}: num_gpus asks for CUDA, which computes packages of float16, and this one is "
            f"{model.manifest().precision}; import or export it with --precision float16, set num_gpus to 0, or allow "
            "the CPU with cpu_fallback: true"
        )


def _is_for_devices(model: ModelSettings) -> bool:
    return model.manifest().precision == "float16"
