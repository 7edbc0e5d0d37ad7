from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from model.architectures import Transformer, build
from model.config import AttentionConfig
from model.export import export as exporting
from model.export.export import export_package
from model.export.graphs import GraphFile
from model.export.naive import NaiveGraph, open_graphs, open_package, text_inputs
from model.export.precisions import cache_shape, write_graphs
from model.export.quantize import BLOCKS, quantize_blocks, quantize_columns
from model.export.runs import tokens_of
from model.export.samples import Samples
from model.export.verify import LIMITS, TOLERANCE, Report, verify
from model.package import Manifest, PackageError
from model.package.files import sha256_of
from model.package.manifest import TOKENIZER_FILE, Precision
from model.package.place import MOVING
from model.training.recipes import PACKAGES, RECIPES
from tests.conftest import CARDS, TINY, MakePackage, random_model

FASHION = RECIPES[PACKAGES["fashion"]].card  # of what is exported fastest
NAMES = ["sentiment", "embed", "sparse", "fashion", "stories", "translate"]


@pytest.mark.parametrize("name", NAMES)
def test_exported_graphs_answer_like_torch(make_package: MakePackage, name: str) -> None:
    package = make_package(name)

    assert package.manifest.verification.max_relative_error < TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_verification_notices_another_models_weights(make_package: MakePackage, name: str) -> None:
    package = make_package(name)
    graphs = open_package(package.folder, package.manifest)

    report = verify(random_model(package.model.config, seed=1), graphs, batches=1)
    assert report.max_relative_error > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_integer_weights_lose_little(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    model = build(TINY[name]).eval()
    report = verify(model, open_graphs(write_graphs(model, tmp_path, "int8")), batches=4)

    assert 1e-4 < report.distance < LIMITS["int8"] / 3


def test_what_comes_of_a_relu_is_rounded_twice_as_finely(make_package: MakePackage) -> None:
    graph = onnx.load(make_package("translate", "int8").folder / "encoder.onnx").graph
    constants = {each.name: numpy_helper.to_array(each).item() for each in graph.initializer if not each.dims}
    makers = {name: node for node in graph.node for name in node.output}
    rounded: dict[bool, set[tuple[float, int]]] = {True: set(), False: set()}
    for node in graph.node:
        if node.op_type == "QuantizeLinear":
            behind_relu = makers[makers[node.input[0]].input[0]].op_type == "Relu"
            rounded[behind_relu].add((round(1 / constants[node.input[1]]), constants[node.input[2]]))

    assert rounded == {True: {(255, 0)}, False: {(127, 128)}}


def test_a_rows_integer_answer_does_not_move_with_its_neighbours(make_package: MakePackage) -> None:
    package = make_package("sentiment", "int8")
    graph = NaiveGraph(package.folder / "encoder.onnx", ["logits"])
    rows = [[2, *range(30, 30 + length), 3] for length in (1, 2, 7, 19, 40, 3)]  # padded to the longest when together

    together = graph.run(text_inputs(rows))["logits"]
    for index, row in enumerate(rows):
        np.testing.assert_array_equal(together[index], graph.run(text_inputs([row]))["logits"][0])


@pytest.mark.parametrize(
    ("name", "graph"), [("sentiment", "encoder"), ("stories", "decoder"), ("translate", "encoder")]
)
def test_words_and_products_are_stored_in_8_bits(make_package: MakePackage, name: str, graph: str) -> None:
    stored = onnx.load(make_package(name, "int8").folder / f"{graph}.onnx").graph.initializer

    # Positions stay in float32, as do the small matrices of the classification head.
    floats = [tensor.name for tensor in stored if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2]
    assert not any("words.weight" in name and not name.endswith("_scales") for name in floats)
    assert any(tensor.data_type == onnx.TensorProto.INT8 for tensor in stored)


def test_columns_are_quantized_to_half_a_step() -> None:
    weight = np.random.default_rng(0).normal(size=(32, 5)).astype(np.float32) * [1, 10, 0.01, 0, 3]

    values, scales = quantize_columns(weight.astype(np.float32))
    assert values.dtype == np.int8 and np.abs(values).max() == 127
    assert (np.abs(values * scales - weight) <= scales / 2 + 1e-6).all()


@pytest.mark.parametrize("precision", BLOCKS)
def test_blocks_are_quantized_to_half_a_step_two_numbers_of_four_bits_a_byte(precision: Precision) -> None:
    blocks = BLOCKS[precision]
    rows, half = blocks.size + 7, 2 ** (blocks.bits - 1)
    weight = (np.random.default_rng(0).normal(size=(rows, 5)) * [1, 10, 0.01, 0, 3]).astype(np.float32)

    values, scales = quantize_blocks(weight, blocks)
    assert values.shape == (5, 2, blocks.size * blocks.bits // 8) and scales.shape == (10,)
    parts = (values,) if blocks.bits == 8 else (values & 15, values >> 4)
    stored = np.stack(parts, axis=-1).reshape(5, 2, blocks.size).astype(np.float64) - half
    expected = np.pad(weight.T, ((0, 0), (0, 2 * blocks.size - rows))).reshape(5, 2, blocks.size)
    steps = scales.reshape(5, 2, 1)
    assert np.abs(stored).max() == half - 1
    assert (np.abs(stored * steps - expected) <= 0.5001 * steps).all()


def test_the_decoder_graph_keeps_its_cache_by_one_operator_a_layer(make_package: MakePackage) -> None:
    graph = onnx.load(make_package("stories").folder / "decoder.onnx").graph

    attention = [node for node in graph.node if node.op_type == "GroupQueryAttention"]
    assert len(attention) == 2 and all(list(node.input[1:3]) == ["", ""] for node in attention)  # packed
    assert not {"Shape", "Loop", "If"} & {node.op_type for node in graph.node}


def test_a_graph_that_differs_from_torch_is_not_packaged(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("stories")
    monkeypatch.setattr(exporting, "verify", lambda *_, **__: Report(0.5, 0.0, 1))

    with pytest.raises(PackageError, match=r"5\.0e-01, relative; the limit is 1e-04"):
        export_package(
            package.model,
            tokens_of(package.folder / TOKENIZER_FILE, RECIPES[PACKAGES["stories"]].card),
            RECIPES[PACKAGES["stories"]].card,
            tmp_path,
            precision="float32",
        )


def test_grouped_and_full_heads_export_alike(tmp_path: Path) -> None:
    config = dataclasses.replace(TINY["stories"], attention=AttentionConfig(4), num_decoder_layers=1)
    model = random_model(config)

    with torch.no_grad():
        report = verify(model, open_graphs(write_graphs(model, tmp_path)), batches=2)
    assert report.max_relative_error < TOLERANCE


def test_what_a_manifest_refuses_is_told_with_the_models_name_and_leaves_nothing(tmp_path: Path) -> None:
    card = dataclasses.replace(FASHION, labels=("no", "yes"))

    with pytest.raises(PackageError, match=r"fashion: manifest: .*labels has 2; the model has 10 outputs"):
        export_package(random_model(TINY["fashion"]), None, card, tmp_path, precision="float32")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_an_export_made_goes_with_its_refusal(tmp_path: Path) -> None:
    model, two = random_model(TINY["fashion"]), dataclasses.replace(FASHION, labels=("no", "yes"))
    few = build(dataclasses.replace(TINY["sentiment"], max_positions=4))

    with pytest.raises(PackageError, match=r"labels has 2"):
        export_package(model, None, two, tmp_path / "two", precision="float32")
    with pytest.raises(PackageError, match=r"max_positions is 4, and 5 are the fewest"):
        export_package(few, None, RECIPES[PACKAGES["sentiment"]].card, tmp_path / "few", precision="float32")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["sentiment", "stories", "translate"])
def test_five_positions_are_enough_to_be_compared(name: str, tmp_path: Path) -> None:
    model = random_model(dataclasses.replace(TINY[name], max_positions=5))

    assert verify(model, open_graphs(write_graphs(model, tmp_path))).max_relative_error < 1e-4


def test_what_an_export_left_that_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".export-killed" / "tmp"
    left.mkdir(parents=True)
    (left / "encoder.onnx").write_bytes(b"half of a graph")

    manifest = export_package(random_model(TINY["fashion"]), None, FASHION, tmp_path, precision="float32")
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", *manifest.sha256}


def test_what_was_half_put_into_its_place_may_be_replaced(tmp_path: Path) -> None:
    for name in (MOVING, "encoder.onnx", "encoder.onnx.data"):
        (tmp_path / name).write_bytes(b"")

    manifest = export_package(random_model(TINY["fashion"]), None, FASHION, tmp_path, precision="float32")
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", *manifest.sha256}


@pytest.mark.parametrize("name", ["train.data", "manifest.json", "tokenizer.json"])
def test_a_folder_of_other_files_stays_as_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(PackageError, match="has files that are no package's; name a folder that is empty"):
        export_package(random_model(TINY["fashion"]), None, FASHION, tmp_path, precision="float32")

    assert [path.name for path in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "{}"


def test_two_exports_into_one_folder_do_not_meet(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    (tmp_path / ".export-other").mkdir()
    with pytest.raises(PackageError, match="another process is writing there"):
        export_package(random_model(TINY["fashion"]), None, FASHION, tmp_path, precision="float32")
    assert (tmp_path / ".export-other").exists()

    os.close(other)
    export_package(random_model(TINY["fashion"]), None, FASHION, tmp_path, precision="float32")
    assert not (tmp_path / ".export-other").exists() and Manifest.load(tmp_path).name == FASHION.name


def test_of_the_package_that_was_there_nothing_is_left_and_of_others_files_all(tmp_path: Path) -> None:
    def export() -> Manifest:
        return export_package(random_model(TINY["fashion"]), None, FASHION, tmp_path, precision="float32")

    before = export()
    for name in ("reliability.png", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    listed = {**before.sha256, "reliability.png": sha256_of(tmp_path / "reliability.png")}
    before.model_copy(update={"sha256": listed}).save(tmp_path)

    manifest = export()
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "manifest.json", *manifest.sha256}

    # Of another version, whose manifest is refused, or half put into the place of one before.
    (tmp_path / "encoder.onnx.data").write_bytes(b"")
    (tmp_path / "former.png").write_bytes(b"")
    (tmp_path / "eval_data").write_bytes(b"")
    for sums in ({"former.png": "", "../outside": ""}, None, "ab"):
        former = json.dumps({"format_version": 1, "graphs": {}, "sha256": sums})
        (tmp_path / "manifest.json").write_text(former)
        export()
        assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "manifest.json", *manifest.sha256}


@pytest.mark.parametrize(("stated", "longest"), [(None, 17), (5, 5), (99, 17)])
def test_inputs_are_as_long_as_the_card_says_and_no_longer_than_the_model_has_positions(
    stated: int | None, longest: int, tmp_path: Path
) -> None:
    card = dataclasses.replace(FASHION, max_input_tokens=stated)
    limits = export_package(random_model(TINY["fashion"]), None, card, tmp_path, precision="float32").limits

    assert (limits.max_input_tokens, limits.max_positions) == (longest, 17)


@pytest.mark.parametrize(("name", "judges_pairs"), [("ranker", True), ("entailment", True), ("sentiment", False)])
def test_what_judges_pairs_has_pairs_for_samples(
    name: str, judges_pairs: bool, make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(name)
    card = CARDS[name] if name in CARDS else RECIPES[PACKAGES[name]].card
    given: list[Samples | None] = []

    def note(
        model: Transformer, folder: Path, precision: Precision = "float32", samples: Samples | None = None
    ) -> dict[str, GraphFile]:
        given.append(samples)
        return write_graphs(model, folder, precision, samples)

    monkeypatch.setattr(exporting, "write_graphs", note)
    tokens, texts = tokens_of(package.folder / TOKENIZER_FILE, card), ["good film\ta dog", "a ball\tgood"]
    export_package(package.model, tokens, card, tmp_path, precision="float32", texts=texts)

    samples = given[-1]
    assert samples is not None and len(samples.rows) == len(texts)
    assert all((sample.segments is not None) == judges_pairs for sample in samples.rows)


def test_a_cache_is_as_precise_as_the_weights() -> None:
    model = random_model(TINY["stories"])
    shapes = [cache_shape(model, precision) for precision in ("float16", "float32", "int8")]

    assert [shape and shape.dtype for shape in shapes] == ["float16", "float32", "float32"]
