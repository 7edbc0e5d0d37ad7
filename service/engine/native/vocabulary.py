"""The passes over a vocabulary by operators of our own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from service.engine.arrays import Doubles, Floats, Ids
from service.engine.native.attention import DOMAIN
from service.engine.passes import NUMPY, Asked, Passes
from service.engine.providers import native_library
from service.engine.session import OperatorSession, SessionOptions
from service.machine import usable_cores

logger = logging.getLogger(__name__)

MOST_THREADS = 4  # with which the passes of a step are as short as it takes to wake more
# What the operators take besides logits, and what they return: types and shapes.
DRAW = {
    "factors": (TensorProto.FLOAT, ["rows"]),
    "top_k": (TensorProto.INT64, ["rows"]),
    "top_p": (TensorProto.DOUBLE, ["rows"]),
    "min_p": (TensorProto.FLOAT, ["rows"]),
    "chances": (TensorProto.DOUBLE, ["rows", "rounds", "chances"]),
}
LIKELIEST = {"counts": (TensorProto.INT64, ["rows"]), "ranks": (TensorProto.INT64, ["most"])}
LIKELIEST_FOUND = {"best": (TensorProto.FLOAT, ["rows", "most"]), "ids": (TensorProto.INT64, ["rows", "most"])}
Kinds = Mapping[str, tuple[int, list[str]]]


def fastest_passes(options: SessionOptions) -> Passes:
    """Return our own operators' passes where these can be had, else NumPy's."""
    try:
        library = native_library() if options.native else None
        return NUMPY if library is None else OwnPasses(library, options)
    except Exception:  # to be faster must not decide whether a model is served
        logger.warning("NumPy chooses tokens: our own operators could not be opened", exc_info=True)
        return NUMPY


class OwnPasses:
    """These passes by our operators, each of which is a graph."""

    def __init__(self, library: Path, options: SessionOptions) -> None:
        """Open them; raises ONNX Runtime's own errors."""
        # A thread that looked for more work after a pass would do so beside the next step.
        options = replace(options, threads=min(options.threads or usable_cores(), MOST_THREADS), spin_us=0)

        def opened(operator: str, inputs: Kinds, outputs: Kinds) -> OperatorSession:
            return OperatorSession(_graph(operator, inputs, outputs), library, options)

        self._draw = opened("Draw", DRAW, {"drawn": (TensorProto.INT64, ["rows"])})
        self._log_total = opened("LogTotal", {}, {"totals": (TensorProto.DOUBLE, ["rows", "one"])})
        self._likeliest = opened("Likeliest", LIKELIEST, LIKELIEST_FOUND)

    def draw(self, logits: Floats, asked: Asked) -> Ids:
        """Draw by weights."""
        drawn: Ids = self._draw.run({"logits": logits, **asked._asdict()})[0]
        return drawn

    def log_totals(self, logits: Floats) -> Doubles:
        """Return the logarithm of the sum of all exponentials."""
        totals: Doubles = self._log_total.run({"logits": logits})[0]
        return totals

    def likeliest(self, logits: Floats, counts: Sequence[int]) -> tuple[Floats, Ids]:
        """Return each row's likeliest tokens."""
        ranks = np.empty(max(counts), np.int64)  # of which only the number is read
        best, ids = self._likeliest.run({"logits": logits, "counts": np.array(counts), "ranks": ranks})
        return best, ids


def _graph(operator: str, inputs: Kinds, outputs: Kinds) -> bytes:
    """Write a graph of one operator."""
    inputs = {"logits": (TensorProto.FLOAT, ["rows", "vocabulary"]), **inputs}
    taken, returned = (
        [helper.make_tensor_value_info(name, *kind) for name, kind in each.items()] for each in (inputs, outputs)
    )
    node = helper.make_node(operator, list(inputs), list(outputs), domain=DOMAIN)
    graph = helper.make_graph([node], operator, taken, returned)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model
