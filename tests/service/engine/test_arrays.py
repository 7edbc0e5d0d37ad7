from __future__ import annotations

import numpy as np

from service.engine.arrays import take


def test_consecutive_rows_are_taken_without_a_copy() -> None:
    values = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)

    assert np.shares_memory(take(values, [2, 3, 4]), values)
    assert take(values, [4, 1]).tolist() == values[[4, 1]].tolist()
    assert take(values, [2, 1, 4]).tolist() == values[[2, 1, 4]].tolist()
