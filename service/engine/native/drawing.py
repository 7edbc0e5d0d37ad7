"""Draws by the weights of all tokens, by an operator of our own."""

from __future__ import annotations

import logging
from pathlib import Path

import onnxruntime
from onnx import TensorProto, helper

from service.engine.columns import Floats
from service.engine.drawing import Asked, Weigh, weigh
from service.engine.native.attention import DOMAIN
from service.engine.providers import CPU, has_cuda, native_library
from service.engine.sampling_params import Ids
from service.engine.session import SessionOptions

logger = logging.getLogger(__name__)


def fastest_weigh(options: SessionOptions) -> Weigh:
    """Return draws by our own operator where it can be had, else NumPy's; few of a device's are the processor's."""
    library = None if not options.native or (options.cuda and has_cuda()) else native_library()
    if library is None:
        return weigh
    try:
        return own_weigh(library, options)
    except Exception:  # to be faster must not decide whether a model is served
        logger.warning("NumPy draws tokens: our own operator could not be opened", exc_info=True)
        return weigh


def own_weigh(library: Path, options: SessionOptions) -> Weigh:
    """Return draws by the operator of a library, as `drawing.weigh` makes them; raises ONNX Runtime's own errors."""
    of_runtime = options.of_runtime()
    of_runtime.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(_graph(), of_runtime, providers=[CPU])

    def weigh(logits: Floats, asked: Asked) -> Ids:
        (ids,) = session.run(None, {"logits": logits, **asked._asdict()})
        drawn: Ids = ids
        return drawn

    return weigh


def _graph() -> bytes:
    inputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", "vocabulary"]),
        helper.make_tensor_value_info("factors", TensorProto.FLOAT, ["rows"]),
        helper.make_tensor_value_info("top_p", TensorProto.DOUBLE, ["rows"]),
        helper.make_tensor_value_info("min_p", TensorProto.FLOAT, ["rows"]),
        helper.make_tensor_value_info("chances", TensorProto.DOUBLE, ["rows", "rounds", 2]),
    ]
    graph = helper.make_graph(
        [helper.make_node("Draw", [each.name for each in inputs], ["ids"], domain=DOMAIN)],
        "draw",
        inputs,
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows"])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model
