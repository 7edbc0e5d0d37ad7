"""Products by a processor's tiles (AMX) are those without, to the last bit; tiles of plain code stand for those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.engine.native.library import instructions_of
from tests.service.engine.native.libraries import built, opened
from tests.service.engine.native.machine import needs_avx512
from tests.service.engine.native.products import product

pytestmark = needs_avx512

EMULATED = Path(__file__).with_name("emulated_tiles.h")
DEPTHS_AND_COLUMNS = [(64, 1), (61, 33), (128, 16), (192, 70), (768, 257), (3072, 64)]
ROWS = [1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 70, 200]


def built_with(folder: Path, tiles: Path) -> Path:
    """Build the operators' library with other tiles than the processor's."""
    return built(folder, f'-DTRIFOLD_TILES="{tiles}"')


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with tiles of plain code."""
    return built_with(tmp_path_factory.mktemp("tiled"), EMULATED)


def test_whoever_reads_the_log_is_told_of_tiles(tiled: Path) -> None:
    assert instructions_of(tiled) == "AVX-512 VNNI and AMX"


@pytest.mark.parametrize(
    "wrong_sum",
    ["sum -= tiles", "sum += (tiles.shapes.rows[kTiles - 3] == 0 ? 2 : 1) * tiles"],
    ids=["always", "of few rows, which need no second tile"],
)
def test_tiles_whose_sums_differ_are_not_used(tmp_path: Path, wrong_sum: str) -> None:
    wrong = tmp_path / "wrong_tiles.h"
    wrong.write_text(EMULATED.read_text().replace("sum += tiles", wrong_sum))

    assert instructions_of(built_with(tmp_path, wrong)) == "AVX-512 VNNI"


@pytest.mark.parametrize("by_rows", [False, True], ids=["a constant scale", "a scale a row"])
@pytest.mark.parametrize(("depth", "columns"), DEPTHS_AND_COLUMNS)
def test_a_product_by_tiles_is_the_same_to_the_last_bit(
    tmp_path: Path, tiled: Path, depth: int, columns: int, by_rows: bool
) -> None:
    path = product(tmp_path / "product.onnx", depth, columns, by_rows=by_rows, bias=not by_rows)
    rng = np.random.default_rng(0)
    for threads in (1, 3):
        own, plain = opened(path, tiled, threads), opened(path, None, threads)
        for rows in ROWS:
            x = rng.standard_normal((1, rows, depth), np.float32) * rng.choice([0.1, 1, 10], (1, rows, 1)).astype("f")
            np.testing.assert_array_equal(own.run({"x": x}, ["y"])[0], plain.run({"x": x}, ["y"])[0])
