from __future__ import annotations

from collections import Counter

import onnx
import pytest

from tests.conftest import MakePackage


@pytest.mark.parametrize(
    ("name", "graph", "norms"), [("sentiment", "encoder", 4), ("stories", "decoder", 4), ("translate", "decoder", 6)]
)
def test_graphs_for_devices_add_and_norm_in_one_run_over_the_memory(
    make_package: MakePackage, name: str, graph: str, norms: int
) -> None:
    nodes = {
        precision: Counter(
            node.op_type for node in onnx.load(make_package(name, precision).folder / f"{graph}.onnx").graph.node
        )
        for precision in ("float32", "float16")
    }
    fused = {kind: count for kind, count in nodes["float16"].items() if kind.startswith("Skip")}

    assert sum(fused.values()) == norms and not any(kind.startswith("Skip") for kind in nodes["float32"])
    assert nodes["float16"].total() <= nodes["float32"].total() - 2 * norms
