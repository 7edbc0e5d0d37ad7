from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from model.card import Tokens
from model.config import NormConfig
from model.export.export import export_package
from model.export.verify import LIMITS
from model.package.manifest import TOKENIZER_FILE
from model.training import cards
from tests.conftest import MakePackage, TinyPackage, random_model


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


def test_a_norm_behind_a_product_alone_stays_a_norm(sentiment: TinyPackage, tmp_path: Path) -> None:
    config = replace(sentiment.model.config, norm=NormConfig(placement="sandwich"))
    tokens = Tokens(sentiment.folder / TOKENIZER_FILE, sentiment.manifest.special_ids)

    manifest = export_package(random_model(config), tokens, cards.SENTIMENT, tmp_path, precision="float16")
    assert 0 < (manifest.verification.distance or 0) < LIMITS["float16"]
