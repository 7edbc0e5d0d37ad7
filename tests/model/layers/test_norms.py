from __future__ import annotations

import torch
from torch import nn

from model.config import NormConfig
from model.layers.norms import LayerNorm, RMSNorm, make_norm


def test_the_worked_example_of_the_notes() -> None:
    norm = LayerNorm(4)

    normalised = norm(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    # (x − 0.25) / √0.0125 = ±1.3416, ±0.4472; the notes' 1.3411 and 0.4470 come with ε = 10⁻⁵ under the root.
    assert torch.allclose(normalised, torch.tensor([-1.3411, -0.4470, 0.4470, 1.3411]), atol=5e-5)


def test_layer_norm_goes_along_a_row_and_batch_norm_down_a_column() -> None:
    batch = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.9, 1.0, 1.1, 1.2], [1.3, 1.4, 1.5, 1.6]])

    # The first column is 0.1, 0.5, 0.9, 1.3: mean 0.7, variance 0.2; (x − 0.7) / √0.2 = ∓1.3416, ∓0.4472.
    down = torch.tensor([-1.3416, -0.4472, 0.4472, 1.3416])
    assert torch.allclose(nn.BatchNorm1d(4)(batch), down[:, None].expand(4, 4), atol=1e-4)
    along = torch.tensor([-1.3411, -0.4470, 0.4470, 1.3411])  # every row, whatever its neighbours are
    assert torch.allclose(LayerNorm(4)(batch), along.expand(4, 4), atol=1e-4)
    assert torch.equal(LayerNorm(4)(batch[:1]), LayerNorm(4)(batch)[:1])


def test_every_position_is_normalised_alone() -> None:
    norm, x = LayerNorm(8), torch.randn(2, 3, 8)

    assert torch.allclose(norm(x)[1, 2], norm(x[1, 2]), atol=1e-6)
    assert torch.allclose(norm(x).mean(-1), torch.zeros(2, 3), atol=1e-6)


def test_it_is_the_formula_of_its_docstring() -> None:
    norm, x = LayerNorm(8, epsilon=0.1), torch.randn(5, 8)
    assert norm.bias is not None
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()

    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    assert torch.allclose(norm(x), (x - mean) / (variance + 0.1).sqrt() * norm.weight + norm.bias, atol=1e-6)


def test_a_layer_norm_may_have_no_shift() -> None:
    norm, x = make_norm(NormConfig(bias=False), 8), torch.randn(5, 8)

    assert norm.bias is None
    assert torch.allclose(norm(x), LayerNorm(8)(x))


def test_an_rms_norm_is_the_formula_of_its_docstring() -> None:
    norm, x = RMSNorm(8, epsilon=0.1), torch.randn(5, 8)
    with torch.no_grad():
        norm.weight.normal_()

    assert torch.allclose(norm(x), x / (x.pow(2).mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight, atol=1e-6)
    assert torch.allclose(norm(x), nn.functional.rms_norm(x, (8,), norm.weight, 0.1), atol=1e-6)


def test_an_rms_norm_of_halves_does_not_overflow() -> None:
    norm = RMSNorm(4).half()

    assert torch.allclose(norm(torch.full((4,), 3e4, dtype=torch.float16)).float(), torch.ones(4), atol=1e-3)
