from __future__ import annotations

from pathlib import Path

import pytest

from model.package.processor import instructions, sums_up_in_16_bits

X86, ARM = "flags\t\t: fpu sse {}\nbugs\t\t: spectre\n", "BogoMIPS\t: 50.00\nFeatures\t: fp asimd {}\n"


@pytest.mark.parametrize(
    ("text", "found"), [(X86, {"fpu", "sse", "avx2"}), (ARM, {"fp", "asimd", "avx2"}), ("", set())]
)
def test_a_processors_instructions_are_those_that_linux_names(tmp_path: Path, text: str, found: set[str]) -> None:
    (cpuinfo := tmp_path / "cpuinfo").write_text(text.format("avx2"))

    assert instructions(cpuinfo) == found
    assert instructions(tmp_path / "none") == set()


@pytest.mark.parametrize(
    ("machine", "named", "does"),
    [
        ("x86_64", "avx2", True),
        ("x86_64", "avx512f avx512bw", True),
        ("x86_64", "avx2 avx_vnni", False),
        ("x86_64", "avx512f avx512_vnni", False),
        ("aarch64", "asimddp", False),
    ],
)
def test_processors_of_x86_without_vnni_sum_up_in_too_few_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, named: str, does: bool
) -> None:
    (cpuinfo := tmp_path / "cpuinfo").write_text((X86 if machine == "x86_64" else ARM).format(named))
    monkeypatch.setattr("platform.machine", lambda: machine)

    assert sums_up_in_16_bits(cpuinfo) == does
