"""A search's likeliest continuations: those of the package's graph, and by our own operators the same."""

from __future__ import annotations

import numpy as np
import pytest

from service.engine.choosing import HostLogits
from service.engine.constraints import Constraints, ConstraintState
from service.engine.passes import NUMPY
from service.engine.session import Session, SessionOptions
from tests.conftest import MakePackage
from tests.service.engine.native.libraries import own_passes

COUNT = 8


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("allowed", [None, 1, 3, COUNT])
def test_continuations_are_the_same_where_few_tokens_may_come_too(
    make_package: MakePackage, allowed: int | None, renormalize: bool
) -> None:
    package = make_package("translate")
    manifest = package.manifest
    candidates = Session(package.folder / manifest.graphs["candidates"].file, SessionOptions(1))
    vocab_size = manifest.vocab_size
    values = np.random.default_rng(0).standard_normal((5, vocab_size)).astype(np.float32) * 3
    states = {}
    if allowed is not None:  # token 0 is one of them, which stands for none behind the last
        constraints = Constraints(suppress_ids=frozenset(range(allowed, vocab_size)), renormalize=renormalize)
        states = {2: ConstraintState(constraints, [5], 9, frozenset())}

    (plain, plain_ids), (own, own_ids) = (
        HostLogits(values.copy(), candidates, passes).search(range(5), states, COUNT)
        for passes in (NUMPY, own_passes())
    )

    is_possible = np.isfinite(plain)
    assert is_possible[2].sum() == min(allowed or COUNT, COUNT)
    np.testing.assert_array_equal(np.isfinite(own), is_possible)
    np.testing.assert_allclose(own[is_possible], plain[is_possible], atol=1e-5)
    np.testing.assert_array_equal(own_ids[is_possible], plain_ids[is_possible])
