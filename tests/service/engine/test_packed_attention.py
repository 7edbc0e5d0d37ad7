"""An encoder's graph with packed attention answers as the package's own; numpy computes what no processor does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import model.export.graph
from model.config import TransformerConfig
from model.export.precisions import write_graphs
from model.package.inputs import encoder_inputs
from service.engine import fastest
from service.engine.arrays import Array
from service.engine.fastest import packed_if_faster
from service.engine.packed_attention import packed_graph
from service.engine.session import Session, SessionOptions
from tests.conftest import TINY, random_model
from tests.service.engine.test_device import needs_gpu
from tests.service.engine.test_fastest import ONE, batches

LENGTHS = np.array([5, 9, 1, 7])


class PackedMultiHeadAttention(OpRun):
    """ONNX Runtime's operator, for text by text from where each begins to where the next does."""

    op_domain = "com.microsoft"

    def _run(self, *inputs: Array, num_heads: int = 0, scale: float = 0.0) -> tuple[Array]:
        query, key, value = (x.astype(np.float32).reshape(len(x), num_heads, -1) for x in inputs[:3])
        assert self.onnx_node.input[3] == ""  # no biases
        places, starts = inputs[4:]
        assert len(starts) == len(places) + 1
        assert starts[-1] == len(query)
        mixed = np.full_like(query, np.nan)
        for start, stop in pairwise(starts):
            assert stop - start <= places.shape[1]
            if stop > start:
                logits = np.einsum("qhd,khd->hqk", query[start:stop], key[start:stop]) * scale
                weights = np.exp(logits - logits.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                mixed[start:stop] = np.einsum("hqk,khd->qhd", weights, value[start:stop])
        return (mixed.reshape(len(mixed), -1).astype(np.float16),)


class SkipLayerNormalization(OpRun):
    """ONNX Runtime's operator: a sum, and the norm of it."""

    op_domain = "com.microsoft"

    def _run(self, x: Array, skip: Array, scale: Array, shift: Array, bias: Any = None, epsilon: float = 0.0) -> Any:
        total = x.astype(np.float32) + skip + (0 if bias is None else bias)
        centred = total - total.mean(-1, keepdims=True)
        norm = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * scale + shift
        outputs = tuple(each.astype(np.float16) for each in (norm, total, total, total))
        return outputs[: len(self.onnx_node.output)]  # of which the second and third have no name


def encoder_of(config: TransformerConfig, folder: Path) -> Path:
    return write_graphs(random_model(config, 0), folder, "float16")["encoder"].path


def ragged() -> dict[str, Array]:
    ids = np.random.default_rng(0).integers(5, 100, (len(LENGTHS), LENGTHS.max()))
    return encoder_inputs(ids, LENGTHS, np.zeros_like(ids))


def operators(graph: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(graph).graph.node]


def answered(graph: bytes, inputs: dict[str, Array]) -> Array:
    model = onnx.load_from_string(graph)
    wanted = {each.name for each in model.graph.input}
    evaluator = ReferenceEvaluator(model, new_ops=[PackedMultiHeadAttention, SkipLayerNormalization])
    (answers,) = evaluator.run(None, {name: value for name, value in inputs.items() if name in wanted})
    return np.asarray(answers, np.float32)


def without_biases(config: TransformerConfig) -> TransformerConfig:
    return replace(config, attention=replace(config.attention, qkv_bias=False, output_bias=False))


def with_norms_behind(config: TransformerConfig) -> TransformerConfig:
    return replace(config, norm=replace(config.norm, placement="post"))


@pytest.mark.parametrize("changed", [lambda config: config, without_biases, with_norms_behind])
def test_texts_of_any_length_are_answered_alike(
    changed: Callable[[TransformerConfig], TransformerConfig], tmp_path: Path
) -> None:
    path = encoder_of(changed(TINY["sentiment"]), tmp_path)
    graph = packed_graph(path)
    assert graph is not None
    assert "GroupQueryAttention" not in operators(graph)

    (own,) = Session(path, ONE).run(ragged(), ["logits"])

    np.testing.assert_allclose(answered(graph, ragged()), own.astype(np.float32), atol=5e-3)


def test_a_picture_is_answered_alike(tmp_path: Path) -> None:
    config = TINY["fashion"]
    path = encoder_of(config, tmp_path)
    graph = packed_graph(path)
    assert graph is not None
    assert config.vision is not None
    side, channels = config.vision.image_size, config.vision.num_channels
    pixels = {"pixels": np.random.default_rng(0).standard_normal((3, channels, side, side), np.float32)}

    (own,) = Session(path, ONE).run(pixels, ["logits"])

    np.testing.assert_allclose(answered(graph, pixels), own.astype(np.float32), atol=5e-3)


def test_weights_that_lie_beside_the_graph_are_read_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parted = (tmp_path / name for name in ("whole", "parted"))
    whole.mkdir()
    parted.mkdir()
    expected = packed_graph(encoder_of(TINY["sentiment"], whole))
    monkeypatch.setattr(model.export.graph, "ONE_FILE_BYTES", 0)
    path = encoder_of(TINY["sentiment"], parted)
    assert len(list(parted.iterdir())) == 2
    found = packed_graph(path)
    assert expected is not None and found is not None

    loaded = onnx.load_from_string(found)
    onnx.load_external_data_for_model(loaded, str(parted))
    np.testing.assert_array_equal(answered(loaded.SerializeToString(), ragged()), answered(expected, ragged()))


def test_of_three_additions_one_is_left(tmp_path: Path) -> None:
    path = encoder_of(TINY["sentiment"], tmp_path)
    graph = packed_graph(path)
    assert graph is not None
    layers = operators(graph).count("PackedMultiHeadAttention")
    own = operators(path.read_bytes())

    # Query, key and value had one for all, over three times the memory.
    assert own.count("GroupQueryAttention") == layers
    names = [name for node in onnx.load_from_string(graph).graph.node for name in node.input]
    assert sum(name.endswith("_query_bias") for name in names) == layers
    assert not any(name.endswith(("_key_bias", "_value_bias")) for name in names)


@pytest.mark.parametrize(
    "attention",
    [{"num_kv_heads": 1}, {"window": 4, "local_layers": (0, 1)}, {"scale": None, "head_dim": 8, "num_kv_heads": 1}],
)
def test_attention_of_another_form_stays_as_it_is(attention: dict[str, Any], tmp_path: Path) -> None:
    config = TINY["sentiment"]
    config = replace(config, attention=replace(config.attention, **attention))

    assert packed_graph(encoder_of(config, tmp_path)) is None


def test_a_cache_is_not_packed(tmp_path: Path) -> None:
    decoder = write_graphs(random_model(TINY["stories"], 0), tmp_path, "float16")["decoder"].path

    assert packed_graph(decoder) is None


def test_attention_with_angles_is_not_packed(tmp_path: Path) -> None:
    config = TINY["sentiment"]
    config = replace(config, positions=replace(config.positions, kind="rotary"))

    assert packed_graph(encoder_of(config, tmp_path)) is None


@pytest.mark.gpu
@needs_gpu
def test_a_device_answers_alike_whatever_the_lengths(tmp_path: Path) -> None:
    path = encoder_of(TINY["sentiment"], tmp_path)
    own, packed = (Session(path, SessionOptions(cuda=True), graph) for graph in (None, packed_graph(path)))
    found = [ragged(), *batches((3, 16))]  # the latter without padding

    assert fastest.compare(own, packed, found, ["logits"]).distance < fastest.MAX_DISTANCE_OF_HALVES


@pytest.mark.parametrize(("speed", "distance", "is_taken"), [(1.5, 0.01, True), (0.9, 0.0, False), (3.0, 0.1, False)])
def test_a_device_computes_what_is_faster_and_answers_alike(
    speed: float, distance: float, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = encoder_of(TINY["sentiment"], tmp_path)
    own = Session(path, ONE)
    monkeypatch.setattr(fastest, "packed_graph", Path.read_bytes)  # a graph that a processor runs, too
    monkeypatch.setattr(fastest, "compare", lambda *_: fastest.Comparison(speed, distance))

    session = packed_if_faster(own, path, ONE, batches((2, 8)), ["logits"], "reviews")

    assert (session is not own) == is_taken


def test_a_device_without_such_attention_computes_the_graph_as_it_is(tmp_path: Path) -> None:
    path = encoder_of(TINY["sentiment"], tmp_path)
    own = Session(path, ONE)

    # As here: the processor has no such operator.
    assert packed_if_faster(own, path, ONE, batches((2, 8)), ["logits"], "reviews") is own


def test_what_stands_at_padding_is_not_compared(tmp_path: Path) -> None:
    batch = ragged()
    answers = np.random.default_rng(0).standard_normal((*batch["input_ids"].shape, 3)).astype(np.float32)
    others = answers.copy()
    others[0, LENGTHS[0] :] = np.nan

    np.testing.assert_array_equal(fastest._of_tokens(answers, batch), fastest._of_tokens(others, batch))
