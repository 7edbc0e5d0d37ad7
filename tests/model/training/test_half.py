"""Where training computes in bfloat16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from model.training import half
from model.training.optimizer import orthogonalised


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16", True),
        ("flags\t\t: fpu amx_bf16 amx_tile", True),
        ("Features\t: fp asimd bf16", True),
        ("flags\t\t: fpu avx2 avx512f avx512_vnni", False),
        ("flags\t\t: fpu avx2", False),
        ("", False),
    ],
)
def test_a_processor_computes_in_halves_where_it_multiplies_them(tmp_path: Path, flags: str, expected: bool) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"model name\t: a processor\n{flags}\n")

    assert half.multiplies_halves(cpuinfo) is expected


def test_elsewhere_training_computes_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "computes_in_halves", lambda _: False)
    matrix = torch.randn(4, 4)
    with half.autocast(torch.device("cpu")):
        product = matrix @ matrix

    assert product.dtype is torch.float32


def test_a_step_of_muon_is_nearly_the_same_in_either(monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = torch.randn(2, 16, 24, generator=torch.Generator().manual_seed(0))
    found = []
    for in_halves in (True, False):
        monkeypatch.setattr("model.training.optimizer.computes_in_halves", lambda _, each=in_halves: each)
        found.append(orthogonalised(matrices))

    assert found[0].dtype is found[1].dtype is torch.float32
    torch.testing.assert_close(*found, atol=0.05, rtol=0.05)
