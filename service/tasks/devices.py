"""Which models run on a GPU: those that ask for one and whose package is for one.

CUDA's attention takes halves, and of products of small integers it has none: of other packages than those of float16
most would be computed on the processor, and all of it copied there and back. So these stay on the processor whole.
"""

from __future__ import annotations

import logging

from service.engine.providers import has_cuda
from service.models_file import ModelSettings

logger = logging.getLogger(__name__)


def wants_device(model: ModelSettings) -> bool:
    """Whether a model's sessions are to be opened on a device."""
    return model.num_gpus > 0 and model.manifest().precision == "float16"


def runs_on_device(model: ModelSettings) -> bool:
    """Whether ONNX Runtime has what such sessions need; whether a device is there only a session shows."""
    return wants_device(model) and has_cuda()


def warn_of_precision(model: ModelSettings) -> None:
    """Tell in the log of a model that holds a GPU and does not use it."""
    if model.num_gpus and not wants_device(model):
        logger.warning(
            "%s: num_gpus reserves a GPU, which computes packages of float16, and this one is %s: it runs on the CPU; "
            "import or export it with --precision float16, or set num_gpus to 0",
            model.package,
            model.manifest().precision,
        )
