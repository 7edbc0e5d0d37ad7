from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from model.config import AttentionConfig, FeedForwardConfig, PositionsConfig, RelativeConfig, TransformerConfig
from model.export.precisions import write_graphs
from model.export.samples import Sample, Samples
from model.package.inputs import encoder_inputs, pad_rows
from model.package.manifest import Precision
from service.engine.arrays import Array
from service.engine.session import Session, SessionOptions
from service.engine.standard_graph import NotStandard, standard_graph
from tests.conftest import TINY, random_model

ONE = SessionOptions(threads=1)
SENTIMENT = TINY["sentiment"]
OF_TEXTS = {
    "learned positions": SENTIMENT,
    "relu": replace(SENTIMENT, feed_forward=FeedForwardConfig(64, "relu")),
    "a label a token": TINY["entities"],
    "vectors": TINY["embed"],
    "keys that heads share": replace(SENTIMENT, attention=AttentionConfig(4, num_kv_heads=2)),
    "rotary positions in a window": replace(
        SENTIMENT,
        attention=AttentionConfig(4, num_kv_heads=2, window=6, local_layers=(1,)),
        positions=PositionsConfig("rotary"),
    ),
    "a bias by distance": replace(SENTIMENT, attention=AttentionConfig(4, relative=RelativeConfig("bucketed"))),
}


def both_answers(folder: Path, config: TransformerConfig, precision: Precision, ids: list[list[int]]) -> list[Array]:
    """Return what a model's own graph and its standard one answer; where tokens have answers, those of real ones."""
    rows = [Sample(each) for each in ids]
    samples = Samples(rows, start=2, end=3, max_positions=64)
    graph = write_graphs(random_model(config), folder, precision, samples)["encoder"]
    sessions = Session(graph.path, ONE), Session(graph.path, ONE, standard_graph(graph.path))
    padded, lengths = pad_rows(ids, 0)
    inputs = encoder_inputs(padded, lengths, np.zeros_like(padded))
    wanted = {name: array for name, array in inputs.items() if name in graph.inputs}
    answers = [session.run(wanted, graph.outputs)[0] for session in sessions]
    if answers[0].ndim == 3:
        real = np.arange(padded.shape[1]) < lengths[:, None]
        answers = [answer[real] for answer in answers]
    return answers


@pytest.mark.parametrize("config", OF_TEXTS.values(), ids=OF_TEXTS)
def test_the_standard_graph_answers_as_the_own_one(tmp_path: Path, config: TransformerConfig) -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(5, config.vocab_size, length).tolist() for length in (1, 9, 30, 31)]
    own, standard = both_answers(tmp_path, config, "float32", ids)

    np.testing.assert_allclose(standard, own, atol=2e-5 * np.abs(own).max())


@pytest.mark.parametrize("precision", ["int8", "int8-static"])
@pytest.mark.parametrize("config", [OF_TEXTS["learned positions"], OF_TEXTS["relu"]], ids=["gelu", "relu"])
def test_products_of_integers_become_products_of_floats_with_the_same_weights(
    tmp_path: Path, config: TransformerConfig, precision: Precision
) -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(5, config.vocab_size, length).tolist() for length in (1, 9, 30, 31)]
    own, standard = both_answers(tmp_path, config, precision, ids)

    # They differ by the rounding of activations to 8 bits, which the standard graph does without.
    assert 0 < np.abs(standard - own).max() < 0.1 * np.abs(own).max()


def test_a_row_of_zeros_before_a_product_stays_one(tmp_path: Path) -> None:
    """The own graph divides each row by its largest number, which the standard one must not."""
    model = random_model(SENTIMENT)
    for name, parameter in model.named_parameters():
        if name.startswith("embeddings.norm."):
            parameter.data.zero_()
    graph = write_graphs(model, tmp_path, "int8")["encoder"]
    session = Session(graph.path, ONE, standard_graph(graph.path))
    ids = np.array([[7, 8, 9]])
    (answer,) = session.run(encoder_inputs(ids, np.array([3]), np.zeros_like(ids)), graph.outputs)

    assert np.isfinite(answer).all()


def test_images_are_classified_by_a_standard_graph(tmp_path: Path) -> None:
    graph = write_graphs(random_model(TINY["fashion"]), tmp_path)["encoder"]
    pixels = np.random.default_rng(0).standard_normal((3, 1, 28, 28), np.float32)
    own, standard = (
        Session(graph.path, ONE, model).run({"pixels": pixels}, graph.outputs)[0]
        for model in (None, standard_graph(graph.path))
    )

    np.testing.assert_allclose(standard, own, atol=2e-5 * np.abs(own).max())


def test_only_operators_of_the_standard_are_left(tmp_path: Path) -> None:
    graph = write_graphs(random_model(SENTIMENT), tmp_path, "int8")["encoder"]
    written = onnx.load_from_string(standard_graph(graph.path))

    onnx.checker.check_model(written)
    assert {node.domain for node in written.graph.node} == {""}


@pytest.mark.parametrize(("name", "precision"), [("sentiment", "int8-blocks"), ("stories", "float32")])
def test_what_has_no_standard_form_is_refused_by_its_operator(tmp_path: Path, name: str, precision: Precision) -> None:
    graphs = write_graphs(random_model(TINY[name]), tmp_path, precision)
    graph = graphs.get("encoder") or graphs["decoder"]

    with pytest.raises(NotStandard, match=r"MatMulNBits|GroupQueryAttention"):
        standard_graph(graph.path)
