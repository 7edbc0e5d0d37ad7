"""Whichever registers a processor has, answers are the same to the last bit: two of AVX2 stand for one of AVX-512.

The instruction that AVX-VNNI adds to AVX2 has the form here that AVX-512 has for it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.engine.native.library import instructions_of
from service.engine.native.vocabulary import OwnPasses
from service.engine.passes import Asked
from service.engine.providers import native_library
from service.engine.session import SessionOptions
from tests.service.engine.native.attentions import Form, halved, run
from tests.service.engine.native.libraries import built, opened
from tests.service.engine.native.machine import needs_avx512
from tests.service.engine.native.products import product

pytestmark = needs_avx512


NARROW = {"AVX2": "-DTRIFOLD_WITHOUT_AVX_VNNI", "AVX-VNNI": "-DTRIFOLD_EVEX"}


@pytest.fixture(scope="module", params=NARROW)
def narrow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as processors without AVX-512 VNNI use it."""
    library = built(tmp_path_factory.mktemp("narrow"), "-DTRIFOLD_WITHOUT_AVX512", NARROW[request.param])
    assert instructions_of(library) == request.param
    return library


@pytest.fixture(scope="module")
def wide() -> Path:
    library = native_library()
    assert library is not None and instructions_of(library).startswith("AVX-512 VNNI")
    return library


@pytest.mark.parametrize("by_rows", [False, True], ids=["a constant scale", "a scale a row"])
@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (3, 33), (61, 7), (64, 64), (192, 70), (768, 257), (3072, 64)])
def test_products_are_the_same_to_the_last_bit(
    tmp_path: Path, narrow: Path, wide: Path, depth: int, columns: int, by_rows: bool
) -> None:
    path = product(tmp_path / "product.onnx", depth, columns, by_rows=by_rows, bias=not by_rows)
    rng = np.random.default_rng(0)
    for threads in (1, 3):
        one, other = opened(path, narrow, threads), opened(path, wide, threads)
        for rows in (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 70, 200):
            x = rng.standard_normal((1, rows, depth), np.float32) * rng.choice([0.1, 1, 10], (1, rows, 1)).astype("f")
            np.testing.assert_array_equal(one.run({"x": x}, ["y"])[0], other.run({"x": x}, ["y"])[0])


FORMS = [
    Form(turns=True),
    Form(heads=16, kv_heads=1, window=7),
    Form(heads=2, kv_heads=2, width=80, is_packed=True, has_bias=True),
    Form(heads=1, kv_heads=1, width=256),
]


@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
@pytest.mark.parametrize("form", FORMS, ids=["turned", "shared, a window", "packed, a bias", "wide"])
def test_attention_to_a_cache_is_the_same_to_the_last_bit(
    tmp_path: Path, narrow: Path, wide: Path, form: Form, half_cache: bool
) -> None:
    path = form.write(tmp_path / "attention.onnx")
    one, other = (opened(path, library, half_cache=half_cache) for library in (narrow, wide))
    for last, tokens, before in (([0, 17, 60], 1, 0), ([19, 7, 0], 20, 0), ([632], 33, 600)):
        inputs = form.inputs(last, tokens, before, capacity=700)
        inputs = halved(inputs) if half_cache else inputs
        for answer, expected in zip(run(one, inputs), run(other, inputs), strict=True):
            np.testing.assert_array_equal(answer, expected)


@pytest.mark.parametrize(
    "form",
    [
        Form(has_cache=False, is_causal=False, has_bias=True),
        Form(heads=3, kv_heads=1, width=24, has_cache=False, turns=True, window=130),
        Form(heads=1, kv_heads=1, width=40, has_cache=False, is_packed=True),
    ],
    ids=["a bias", "turned, a window", "packed"],
)
def test_attention_of_rows_to_themselves_is_the_same_to_the_last_bit(
    tmp_path: Path, narrow: Path, wide: Path, form: Form
) -> None:
    path = form.write(tmp_path / "attention.onnx")
    one, other = opened(path, narrow), opened(path, wide)
    for last in ([0], [16, 3], [63, 64, 65], [127, 128, 2], [300]):
        inputs = form.inputs(last, max(last) + 1)
        np.testing.assert_array_equal(run(one, inputs)[0], run(other, inputs)[0])


def test_scores_far_below_the_greatest_are_the_same_to_the_last_bit(tmp_path: Path, narrow: Path, wide: Path) -> None:
    form = Form(heads=1, kv_heads=1, has_cache=False, is_causal=False)
    path = form.write(tmp_path / "attention.onnx")
    inputs = form.inputs([199], 200)
    inputs["query"] *= 60  # so that most weights are smaller than the smallest normal number, or nothing
    one, other = (run(opened(path, library), inputs)[0] for library in (narrow, wide))

    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("vocab_size", [1, 17, 800, 5003])
def test_passes_over_a_vocabulary_are_the_same_to_the_last_bit(narrow: Path, wide: Path, vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    rows = 40
    logits = rng.standard_normal((rows, vocab_size), np.float32) * 3
    asked = Asked(
        factors=rng.uniform(0.5, 2, rows).astype(np.float32),
        top_k=rng.choice([0, 1, vocab_size // 2, 2 * vocab_size], rows),
        top_p=rng.choice([0.3, 0.95, 1.0], rows),
        min_p=rng.choice([0, 0.02], rows).astype(np.float32),
        chances=rng.random((rows, 8, 2)),
    )
    one, other = (OwnPasses(library, SessionOptions(1)) for library in (narrow, wide))

    np.testing.assert_array_equal(one.draw(logits, asked), other.draw(logits, asked))
    np.testing.assert_array_equal(one.log_totals(logits), other.log_totals(logits))
    counts = rng.integers(0, vocab_size + 1, rows).tolist()
    for found, expected in zip(one.likeliest(logits, counts), other.likeliest(logits, counts), strict=True):
        np.testing.assert_array_equal(found, expected)
