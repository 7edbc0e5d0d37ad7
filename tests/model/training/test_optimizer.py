from __future__ import annotations

import pytest
import torch
from torch import nn

from model.architectures import build
from model.training.optimizer import (
    ADAMW_RMS,
    Muon,
    learning_rate_factor,
    optimizer_of,
    orthogonalised,
    parameter_groups,
)
from tests.conftest import TINY


def test_the_learning_rate_warms_up_and_falls() -> None:
    factors = [learning_rate_factor(step, 10, 100) for step in range(101)]

    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == pytest.approx(1.0) and factors.index(max(factors)) in {9, 10}
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[100] == pytest.approx(0.02)


def test_deeper_layers_learn_more_slowly() -> None:
    model = build(TINY["sentiment"])
    scale_of = {
        id(parameter): group["scale"] for group in parameter_groups(model, 0.01, 0.5) for parameter in group["params"]
    }
    scales = {name: scale_of[id(parameter)] for name, parameter in model.named_parameters()}

    assert scales["head.output.weight"] == scales["encoder.final_norm.weight"] == 1.0
    assert scales["encoder.blocks.1.self_attention.query.weight"] == 0.5
    assert scales["encoder.blocks.0.feed_forward.expand.bias"] == 0.25
    assert scales["embeddings.words.weight"] == 0.125


def test_only_matrices_decay() -> None:
    for group in parameter_groups(build(TINY["stories"]), 0.1, 1.0):
        assert group["weight_decay"] == (0.1 if group["params"][0].dim() >= 2 else 0.0)
        assert len({parameter.dim() >= 2 for parameter in group["params"]}) == 1


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (24, 8), (8, 24)])
def test_orthogonalised_matrices_point_the_same_way_in_all_directions_alike(rows: int, columns: int) -> None:
    torch.manual_seed(0)
    loud = torch.tensor([100.0, 10.0, *[1.0] * (min(rows, columns) - 2)])  # the largest singular values
    left, _ = torch.linalg.qr(torch.randn(3, rows, min(rows, columns)))
    right, _ = torch.linalg.qr(torch.randn(3, columns, min(rows, columns)))
    made = orthogonalised((left * loud) @ right.mT)

    along = (left.mT @ made @ right).diagonal(dim1=-2, dim2=-1)  # of each old direction, how far it is gone now
    assert made.shape == (3, rows, columns)
    assert ((along > 0.6) & (along < 1.3)).all()


def test_muon_takes_steps_as_loud_as_adamws_and_decays_weights() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(64, 256))
    before = weight.detach().clone()
    weight.grad = torch.randn(64, 256) * 1e-3
    Muon([{"params": [weight], "weight_decay": 0.5}], 0.1).step()

    step = weight.detach() - before * (1 - 0.1 * 0.5)
    assert step.square().mean().sqrt().item() == pytest.approx(0.1 * ADAMW_RMS, rel=0.2)


def test_muon_leaves_matrices_without_gradients_as_they_are() -> None:
    weight = nn.Parameter(torch.ones(4, 4))
    Muon([{"params": [weight], "weight_decay": 0.5}], 0.1).step()

    assert torch.equal(weight, torch.ones(4, 4))


def test_muon_moves_each_matrix_as_if_it_were_alone() -> None:
    torch.manual_seed(0)
    shapes = [(8, 8), (24, 8), (8, 8), (8, 24)]
    rates = [(0.1, 0.5), (0.1, 0.5), (0.02, 0.0), (0.02, 0.0)]  # and how fast it decays
    start, gradients = ([torch.randn(shape) for shape in shapes] for _ in range(2))

    def moved(places: list[int]) -> list[torch.Tensor]:
        weights = [nn.Parameter(start[place].clone()) for place in places]
        groups = [
            {"params": [weight], "lr": rates[place][0], "weight_decay": rates[place][1]}
            for weight, place in zip(weights, places, strict=True)
        ]
        muon = Muon(groups, 0.1)
        for _ in range(3):
            for weight, place in zip(weights, places, strict=True):
                weight.grad = gradients[place].clone()
            muon.step()
        return [weight.detach() for weight in weights]

    together = moved([0, 1, 2, 3])
    for place in range(4):
        assert torch.allclose(together[place], moved([place])[0], atol=1e-6)
        assert not torch.allclose(together[place], start[place], atol=1e-3)


def test_muon_learns_the_matrices_of_blocks_and_adamw_all_else() -> None:
    model = build(TINY["translate"])
    muon, adamw = optimizer_of(model, 1e-3, 0.01, 0.5, 4e-3)._parts  # type: ignore[attr-defined]
    learned = [{id(each) for group in part.param_groups for each in group["params"]} for part in (muon, adamw)]
    names = {name for name, weight in model.named_parameters() if id(weight) in learned[0]}

    assert isinstance(muon, Muon) and isinstance(adamw, torch.optim.AdamW)
    assert learned[0].isdisjoint(learned[1])
    assert len(learned[0]) + len(learned[1]) == len(list(model.parameters()))
    assert "decoder.blocks.0.cross_attention.key.weight" in names
    assert all(".blocks." in name and name.endswith(".weight") and "norm" not in name for name in names)
    assert {group["scale"] for group in muon.param_groups} == {
        4 * group["scale"] for group in adamw.param_groups if group["scale"] in {0.5, 0.25}
    }
