"""Which runtime computes an encoder: the package's own graph in ONNX Runtime, or a standard one in OpenVINO.

Which is faster depends on the processor, its neighbours and the model's sizes, so it is measured before the first
request, on a few shapes of batches. OpenVINO multiplies in bfloat16 where the processor has that, on Intel's of late in
matrices (AMX); whether its answers are the same to the last bit in any company, nobody promises.

On a device it is which attention: the package's own, or one that takes rows as they lie in memory (`packed_attention`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from service.engine.arrays import Array
from service.engine.packed_attention import packed_graph
from service.engine.providers import has_openvino
from service.engine.session import Session, SessionOptions
from service.engine.standard_graph import standard_graph

logger = logging.getLogger(__name__)

GraphInputs = Mapping[str, Array]  # of one batch, by name

TURNS = 3  # of each session at each batch; the shortest counts, as neighbours only ever make one longer
GAIN = 1.1  # how many times as fast another graph must be to be taken: less is within what measuring errs by
MAX_DISTANCE = 0.2  # of its answers from the own graph's, by the largest of them: what a package of int8 may differ by
GAIN_ON_DEVICE, MAX_DISTANCE_OF_HALVES = 1.05, 0.02  # the same of a package of float16 on a device


@dataclass(frozen=True)
class Comparison:
    """Another session beside a package's own: how many times as fast, the mean of the batches, and how far apart."""

    speed: float
    distance: float

    def is_better(self, gain: float, max_distance: float) -> bool:
        """Whether the other is to be taken: at least `gain` times as fast, its answers at most `max_distance` apart."""
        return self.speed >= gain and self.distance <= max_distance


def fastest_session(
    path: Path, options: SessionOptions, batches: Sequence[GraphInputs], outputs: Sequence[str], name: str
) -> Session:
    """Open an encoder's graph, and in OpenVINO too where it is to be had; return the faster, and tell it in the log."""
    own = Session(path, options)
    if own.provider != "cpu":
        return own
    if not has_openvino():
        logger.info(
            "%s: exact is false, but OpenVINO's plugin for ONNX Runtime is not installed or does not take this "
            "processor, so the package's own graph runs",
            name,
        )
        return own
    try:
        other = _by_openvino(path, options)
        compared = compare(own, other, batches, outputs)
    except Exception as error:  # a graph that it cannot take is no reason not to serve
        logger.warning("%s: OpenVINO does not run it, so the package's own graph runs: %s", name, error)
        return own
    return _chosen(own, other, compared, compared.is_better(GAIN, MAX_DISTANCE), name, "OpenVINO")


def packed_if_faster(
    own: Session, path: Path, options: SessionOptions, batches: Sequence[GraphInputs], outputs: Sequence[str], name: str
) -> Session:
    """Return an encoder's graph with packed attention if a device computes it faster than `own`; tell it in the log."""
    try:
        graph = packed_graph(path)
        if graph is None:
            return own
        with own.turn:  # others of this process may be recording a step
            other = Session(path, options, graph)
            compared = compare(own, other, batches, outputs)
    except Exception as error:  # as of a device whose attention has no such form
        logger.warning("%s: packed attention could not be tried, so the graph runs as it is: %s", name, error)
        return own
    is_better = compared.is_better(GAIN_ON_DEVICE, MAX_DISTANCE_OF_HALVES)
    return _chosen(own, other, compared, is_better, name, "packed attention")


def _chosen(own: Session, other: Session, compared: Comparison, is_better: bool, name: str, what: str) -> Session:
    """Return the one that runs, and tell it in the log; `what` the other has."""
    logger.info(
        "%s: %s is %.2f times as fast as the package's own graph, and its answers differ by %.2g of the largest; "
        "%s runs",
        name,
        what,
        compared.speed,
        compared.distance,
        "it" if is_better else "the package's own graph",
    )
    return other if is_better else own


def compare(own: Session, other: Session, batches: Sequence[GraphInputs], outputs: Sequence[str]) -> Comparison:
    """Let two sessions compute the same batches in turns."""
    speeds, distances = [], []
    for batch in batches:
        # Both begin with a run that does not count, in which they take their memory.
        ours, theirs = (_of_tokens(session.run(batch, outputs)[0], batch) for session in (own, other))
        distances.append(float(np.abs(ours - theirs).max() / max(np.abs(ours).max(), np.finfo(np.float32).tiny)))
        turns = [[_seconds(session, batch, outputs) for session in (own, other)] for _ in range(TURNS)]
        least = [min(side) for side in zip(*turns, strict=True)]
        speeds.append(least[0] / least[1])
    return Comparison(geometric_mean(speeds), float(np.max(distances)))  # NaN, if one is


def _of_tokens(answers: Array, batch: GraphInputs) -> Array:
    """Return what is answered of texts and tokens, without what stands at padding, which means nothing."""
    lengths, ids = batch.get("last_positions"), batch.get("input_ids")
    if lengths is None or ids is None or answers.ndim < 3 or answers.shape[:2] != ids.shape:
        return answers
    is_token: Array = np.arange(ids.shape[1]) <= lengths[:, None]
    return np.asarray(answers[is_token])


def _by_openvino(path: Path, options: SessionOptions) -> Session:
    return Session(path, replace(options, openvino=True), standard_graph(path))


def _seconds(session: Session, batch: GraphInputs, outputs: Sequence[str]) -> float:
    started = time.perf_counter()
    session.run(batch, outputs)
    return time.perf_counter() - started
