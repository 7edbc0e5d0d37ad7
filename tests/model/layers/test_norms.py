from __future__ import annotations

import torch
from torch import nn

from model.layers.norms import LayerNorm


def test_the_worked_example_of_the_notes() -> None:
    norm = LayerNorm(4)

    normalised = norm(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    # (x − 0.25) / √0.0125 = ±1.3416, ±0.4472; the notes' 1.3411 and 0.4470 come with ε = 10⁻⁵ under the root.
    assert torch.allclose(normalised, torch.tensor([-1.3411, -0.4470, 0.4470, 1.3411]), atol=5e-5)


def test_batch_norm_of_the_same_numbers_across_a_batch_agrees() -> None:
    column = torch.tensor([[0.1], [0.2], [0.3], [0.4]])

    across_batch = nn.BatchNorm1d(1)(column).flatten()
    assert torch.allclose(across_batch, LayerNorm(4)(column.flatten()), atol=1e-6)


def test_every_position_is_normalised_alone() -> None:
    norm, x = LayerNorm(8), torch.randn(2, 3, 8)

    assert torch.allclose(norm(x)[1, 2], norm(x[1, 2]), atol=1e-6)
    assert torch.allclose(norm(x).mean(-1), torch.zeros(2, 3), atol=1e-6)


def test_it_is_the_formula_of_its_docstring() -> None:
    norm, x = LayerNorm(8, epsilon=0.1), torch.randn(5, 8)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()

    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    assert torch.allclose(norm(x), (x - mean) / (variance + 0.1).sqrt() * norm.weight + norm.bias, atol=1e-6)
