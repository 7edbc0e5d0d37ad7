from __future__ import annotations

import os
import resource

import numpy as np

from model.package.inputs import encoder_inputs
from service.engine.session import Session, SessionOptions, usable_cores
from tests.conftest import TinyPackage


def test_threads_do_not_exceed_the_cores_of_this_process() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


def test_a_session_returns_the_outputs_asked_for(sentiment: TinyPackage) -> None:
    session = Session(sentiment.folder / "encoder.onnx", SessionOptions(threads=1))
    ids = np.array([[2, 40, 3]])
    (logits,) = session.run(encoder_inputs(ids, np.array([3]), np.zeros_like(ids)), ["logits"])

    assert logits.shape == (1, 2)


def test_memory_stays_flat_over_many_shapes(sentiment: TinyPackage) -> None:
    session = Session(sentiment.folder / "encoder.onnx", SessionOptions(threads=1))

    def run(rows: int, length: int) -> None:
        ids = np.ones((rows, length), np.int64)
        session.run(encoder_inputs(ids, np.full(rows, length), np.zeros_like(ids)), ["logits"])

    run(16, 64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for rows in range(1, 17):
        for length in range(1, 65, 3):
            run(rows, length)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB
