from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
import torch

from model.architectures import build
from model.card import Tokens
from model.config import FeedForwardConfig, NormConfig
from model.export.fuse import fuse
from model.export.graph import Array
from model.export.graphs import save_graph, trace_graphs
from model.export.naive import NaiveGraph, open_graphs, text_inputs
from model.export.precisions import cache_shape, write_graphs
from model.export.ranges import Range, Ranges, find_ranges
from model.export.samples import Sample, Samples, pairs_of
from model.export.smooth import smooth
from model.export.verify import LIMITS, verify
from model.package import PackageError, PackageTokenizer
from model.package.manifest import TOKENIZER_FILE
from tests.conftest import TINY, MakePackage, random_model

TEXTS = ["sentiment", "embed", "stories", "translate"]


def some_samples(vocab_size: int, longest: int = 24) -> Samples:
    rng = np.random.default_rng(0)
    rows = [Sample(rng.integers(0, vocab_size, length).tolist()) for length in range(1, longest)]
    return Samples(rows, start=2, end=3, max_positions=longest)


@pytest.mark.parametrize("name", TEXTS)
def test_constant_scales_lose_little(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    model = build(TINY[name]).eval()
    graphs = write_graphs(model, tmp_path, "int8-static", some_samples(model.config.vocab_size))

    assert 1e-4 < verify(model, open_graphs(graphs), batches=4).distance < LIMITS["int8-static"] / 3


def test_a_long_text_is_seen_in_pieces_as_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(TINY["stories"])
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, 60).tolist()
    samples = Samples([Sample(ids)], start=2, end=3, max_positions=64)
    graphs = trace_graphs(model)

    def sizes() -> list[Array]:
        ranges = find_ranges(graphs, samples, cache_shape(model, "float32"), tmp_path)["decoder"]
        return [ranges[name].sizes for name in sorted(ranges)]

    whole = sizes()
    monkeypatch.setattr("model.export.ranges.CHUNK", 7)
    for one, other in zip(sizes(), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_a_product_is_two_nodes_and_its_bias_none(tmp_path: Path) -> None:
    model = random_model(TINY["stories"])
    samples = some_samples(model.config.vocab_size)
    sizes = {}
    for precision in ("float32", "int8-static"):
        write_graphs(model, tmp_path, precision, samples)
        nodes = onnx.load(tmp_path / "decoder.onnx").graph.node
        sizes[precision] = len(nodes)
        products = [node for node in nodes if node.op_type == "MatMulIntegerToFloat"]

    biased = [node for node in products if len(node.input) == 7]
    assert len(biased) == len(products) - 1  # the words have none
    # One more for each product, less its bias; two more look words up in 8 bits.
    assert sizes["int8-static"] <= sizes["float32"] + len(products) - len(biased) + 3


def test_a_relu_before_a_product_needs_no_node(tmp_path: Path) -> None:
    config = dataclasses.replace(TINY["sentiment"], feed_forward=FeedForwardConfig(64, "relu"))
    model = random_model(config)
    graphs = write_graphs(model, tmp_path, "int8-static", some_samples(config.vocab_size))

    assert "Relu" not in {node.op_type for node in onnx.load(graphs["encoder"].path).graph.node}
    assert verify(model, open_graphs(graphs), batches=2).distance < LIMITS["int8-static"] / 3


def test_an_answer_does_not_move_with_its_neighbours(make_package: MakePackage) -> None:
    package = make_package("sentiment", "int8-static")
    graph = NaiveGraph(package.folder / "encoder.onnx", ["logits"])
    rows = [[2, *range(30, 30 + length), 3] for length in (1, 2, 7, 19, 40, 3)]

    together = graph.run(text_inputs(rows))["logits"]
    for index, row in enumerate(rows):
        np.testing.assert_array_equal(together[index], graph.run(text_inputs([row]))["logits"][0])


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_channels_are_evened_out_without_another_answer(tmp_path: Path, placement: Literal["pre", "post"]) -> None:
    config = dataclasses.replace(TINY["stories"], norm=NormConfig("layer", placement=placement))
    model = random_model(config)
    with torch.no_grad():  # one channel is a hundred times as large as the others
        weights = model.state_dict()
        for name in weights:
            if name.endswith("norm.weight"):
                weights[name][3] *= 100
    graphs = trace_graphs(model)
    fuse(graphs["decoder"])
    samples, cache = some_samples(config.vocab_size), cache_shape(model)
    ranges = find_ranges(graphs, samples, cache, tmp_path)["decoder"]
    evened = smooth(graphs["decoder"], ranges)
    found = find_ranges(graphs, samples, cache, tmp_path)["decoder"]

    def unevenness(seen: Ranges) -> list[float]:
        """Of what norms give to products; the last norm's goes by another name, as some positions are picked of it."""
        return [max(each.sizes) / np.median(each.sizes) for name, each in seen.items() if "LayerNorm" in name]

    before, after = unevenness(ranges), unevenness(found)
    assert min(before) > 30 and len(after) == len(before)
    assert (np.array(after) < 1.5 * np.sqrt(before)).all()  # the weights take the other half
    for name, each in found.items():
        np.testing.assert_allclose(each.largest, evened[name].largest, rtol=1e-3, atol=1e-5)
    files = {name: save_graph(graph, tmp_path / f"{name}.onnx") for name, graph in graphs.items()}
    assert verify(model, open_graphs(files), batches=2).max_relative_error < 1e-4


def test_channels_that_are_even_already_cost_no_node(tmp_path: Path) -> None:
    config = dataclasses.replace(TINY["sentiment"], norm=NormConfig("layer", placement="post"))
    nodes = {}
    for loud in (1, 100):
        torch.manual_seed(0)
        model = build(config).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith("norm.weight"):
                    weight[3] *= loud
        write_graphs(model, tmp_path, "int8-static", some_samples(config.vocab_size))
        nodes[loud] = [node.op_type for node in onnx.load(tmp_path / "encoder.onnx").graph.node]

    products = nodes[1].count("MatMulIntegerToFloat")
    assert nodes[100].count("Mul") - nodes[1].count("Mul") == products / 2  # of four products two are behind a norm


def test_numbers_within_a_range_are_kept_to_a_step() -> None:
    values = np.random.default_rng(0).normal(2, 3, (50, 8)).astype(np.float32)
    seen = Range.empty(8)
    seen.see(values[:20])
    seen.see(values[20:])

    step, zero_point = seen.step_and_zero_point()
    stored = np.clip(np.rint(values / step) + zero_point, 0, 255)
    inside = (values >= seen.least.min()) & (values <= seen.largest.max())
    assert np.abs((stored - zero_point) * step - values)[inside].max() <= step  # half of it, and the zero point's own
    assert [float(each) for each in Range.empty(8).step_and_zero_point()] == [1.0, 0.0]


def test_a_model_of_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="sample texts"):
        write_graphs(random_model(TINY["fashion"]), tmp_path, "int8-static", None)


def test_what_judges_pairs_is_measured_on_pairs(make_package: MakePackage) -> None:
    ranker = make_package("ranker")
    tokens = Tokens(ranker.folder / TOKENIZER_FILE, ranker.manifest.special_ids)
    written, *neighbours = pairs_of(ranker.model.config, tokens, ["good film\ta dog", "good", "bad film"]).rows
    tokenizer = PackageTokenizer.load(tokens.file)

    assert written.ids == tokenizer.encode("good film", "a dog").ids
    assert [sample.ids for sample in neighbours] == [
        tokenizer.encode("good", "bad film").ids,
        tokenizer.encode("bad film", "good film\ta dog").ids,
    ]
    assert all(set(sample.segments or ()) == {0, 1} for sample in (written, *neighbours))
