from __future__ import annotations

import math

import torch
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from model.config import PositionsConfig
from model.layers.positions import (
    LearnedPositions,
    fairseq_table,
    grid_table,
    halves_table,
    make_positions,
    sinusoidal_table,
)
from tests.model.layers.configs import decoder


def test_the_table_is_the_papers_formula() -> None:
    table = sinusoidal_table(50, 16)

    for position, feature in [(0, 0), (1, 0), (7, 4), (49, 14)]:
        angle = position / 10000 ** (feature / 16)
        assert math.isclose(float(table[position, feature]), math.sin(angle), abs_tol=1e-5)
        assert math.isclose(float(table[position, feature + 1]), math.cos(angle), abs_tol=1e-5)


def test_the_first_positions_worked_by_hand() -> None:
    # Four features: sine and cosine of the position, then of a hundredth of it (10000^(2/4) is 100).
    table = torch.tensor(
        [
            [0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999],
            [0.9093, -0.4161, 0.0200, 0.9998],
            [0.1411, -0.9900, 0.0300, 0.9996],
        ]
    )
    assert torch.allclose(sinusoidal_table(4, 4), table, atol=6e-5)


def test_a_shift_is_the_same_rotation_everywhere() -> None:
    table = sinusoidal_table(100, 32)

    assert torch.allclose((table[3] @ table[8]), (table[60] @ table[65]), atol=1e-4)


def test_half_of_a_grids_vector_tells_the_row_and_half_the_column() -> None:
    table, waves = grid_table(3, 16).view(3, 3, 16), sinusoidal_table(3, 8)

    for row, column in [(0, 0), (1, 2), (2, 1)]:
        assert torch.equal(table[row, column], torch.cat((waves[row], waves[column])))


def test_positions_are_looked_up_by_id() -> None:
    ids = torch.tensor([[4, 0, 2]])

    waves = make_positions(decoder(positions=PositionsConfig("sinusoidal")))
    assert waves is not None
    assert torch.equal(waves(ids)[0, 1], sinusoidal_table(64, 32)[0])
    assert LearnedPositions(8, 6)(ids).shape == (1, 3, 6)


def test_sines_before_cosines_are_marians() -> None:
    theirs = MarianSinusoidalPositionalEmbedding(20, 16)
    expected = theirs.create_weight()

    assert torch.allclose(halves_table(20, 16), expected, atol=1e-6)


def test_the_third_order_of_waves_is_m2ms_and_the_offset_shifts_them() -> None:
    theirs = M2M100SinusoidalPositionalEmbedding(20, 32, padding_idx=1)
    ours = make_positions(decoder(positions=PositionsConfig("sinusoidal-fairseq", offset=2)))

    assert ours is not None
    expected = theirs(torch.full((1, 7), 5))
    assert torch.allclose(ours(torch.arange(7)[None]), expected, atol=1e-5)
    assert torch.allclose(fairseq_table(9, 32)[2:], expected[0], atol=1e-5)
