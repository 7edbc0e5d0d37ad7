from __future__ import annotations

import math

import torch

from model.layers.positions import LearnedPositions, SinusoidalPositions, grid_table, sinusoidal_table


def test_the_table_is_the_papers_formula() -> None:
    table = sinusoidal_table(50, 16)

    for position, feature in [(0, 0), (1, 0), (7, 4), (49, 14)]:
        angle = position / 10000 ** (feature / 16)
        assert math.isclose(float(table[position, feature]), math.sin(angle), abs_tol=1e-5)
        assert math.isclose(float(table[position, feature + 1]), math.cos(angle), abs_tol=1e-5)


def test_a_shift_is_the_same_rotation_everywhere() -> None:
    table = sinusoidal_table(100, 32)

    assert torch.allclose((table[3] @ table[8]), (table[60] @ table[65]), atol=1e-4)


def test_half_of_a_grids_vector_tells_the_row_and_half_the_column() -> None:
    table, waves = grid_table(3, 16).view(3, 3, 16), sinusoidal_table(3, 8)

    for row, column in [(0, 0), (1, 2), (2, 1)]:
        assert torch.equal(table[row, column], torch.cat((waves[row], waves[column])))


def test_positions_are_looked_up_by_id() -> None:
    ids = torch.tensor([[4, 0, 2]])

    assert torch.equal(SinusoidalPositions(8, 6)(ids)[0, 1], sinusoidal_table(8, 6)[0])
    assert LearnedPositions(8, 6)(ids).shape == (1, 3, 6)
