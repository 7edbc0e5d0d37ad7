"""Every choice of the configuration, exported: as few models as have them all, each like a family of checkpoints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest

from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    NormConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryScaling,
    TransformerConfig,
)
from model.export.naive import open_graphs
from model.export.precisions import write_graphs
from model.export.verify import TOLERANCE, verify
from model.sizes import default_head
from tests.conftest import random_model

SIZES: dict[str, Any] = {"vocab_size": 90, "d_model": 64, "max_positions": 64}
RMS = NormConfig("rms", epsilon=1e-6, bias=False)

FAMILIES: dict[str, TransformerConfig] = {
    "gemma3": TransformerConfig(
        "decoder",
        **SIZES,
        num_decoder_layers=2,
        attention=AttentionConfig(
            4,
            num_kv_heads=1,
            head_dim=32,
            qkv_bias=False,
            output_bias=False,
            qk_norm=True,
            scale=0.1,
            window=4,
            local_layers=(0,),
        ),
        positions=PositionsConfig("rotary", base=1e6, local_base=1e4, scaling=RotaryScaling(8.0, 1.0, 4.0, 32)),
        norm=NormConfig("rms", "sandwich", 1e-6, bias=False),
        feed_forward=FeedForwardConfig(48, "gelu-tanh", gated=True, bias=False),
        embeddings=EmbeddingsConfig(scale=True),
        head=HeadConfig(tied=False),
    ),
    "t5": TransformerConfig(
        "encoder_decoder",
        **SIZES,
        num_encoder_layers=2,
        num_decoder_layers=2,
        attention=AttentionConfig(
            4, head_dim=8, qkv_bias=False, output_bias=False, scale=1.0, relative=RelativeConfig("bucketed", 8, 20)
        ),
        positions=PositionsConfig("none"),
        norm=RMS,
        feed_forward=FeedForwardConfig(48, "gelu-tanh", gated=True, bias=False),
        head=HeadConfig(scale=0.125),
    ),
    "modernbert": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=3,
        attention=AttentionConfig(4, qkv_bias=False, output_bias=False, window=4, local_layers=(1, 2)),
        positions=PositionsConfig("rotary", base=16e4, local_base=1e4),
        norm=NormConfig(bias=False, skips_first=True),
        feed_forward=FeedForwardConfig(48, gated=True, bias=False),
        embeddings=EmbeddingsConfig(norm=True),
        head=HeadConfig("classify", 3, "mean", dense=True, dense_bias=False, activation="gelu", norm=True, bias=True),
    ),
    "deberta": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=2,
        attention=AttentionConfig(4, relative=RelativeConfig("disentangled", 8, 64)),
        positions=PositionsConfig("none"),
        norm=NormConfig(placement="post"),
        feed_forward=FeedForwardConfig(48),
        embeddings=EmbeddingsConfig(norm=True),
        head=default_head("tag", 5),
    ),
    "eurobert, to classify": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=2,
        attention=AttentionConfig(4, num_kv_heads=2, qkv_bias=False, output_bias=False),
        positions=PositionsConfig("rotary"),
        norm=RMS,
        feed_forward=FeedForwardConfig(48, "silu", gated=True, bias=False),
        head=HeadConfig("classify", 3, "late", dense=True, activation="gelu", bias=True),
    ),
    "roberta, to fill": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=1,
        attention=AttentionConfig(4),
        norm=NormConfig(placement="post"),
        feed_forward=FeedForwardConfig(48),
        embeddings=EmbeddingsConfig(norm=True),
        head=default_head("fill"),
    ),
    "bart, to classify": TransformerConfig(
        "encoder_decoder",
        **SIZES,
        num_encoder_layers=1,
        num_decoder_layers=2,
        attention=AttentionConfig(4),
        norm=NormConfig(placement="post"),
        feed_forward=FeedForwardConfig(48),
        embeddings=EmbeddingsConfig(norm=True),
        head=HeadConfig("classify", 3, "last", dense=True, bias=True),
    ),
    "mpnet, to tag": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=2,
        attention=AttentionConfig(4, relative=RelativeConfig("bucketed", 8, 20)),
        norm=NormConfig(placement="post"),
        feed_forward=FeedForwardConfig(48),
        embeddings=EmbeddingsConfig(norm=True),
        head=default_head("tag", 5),
    ),
    "electra, to fill": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=2,
        attention=AttentionConfig(4),
        norm=NormConfig(placement="post"),
        feed_forward=FeedForwardConfig(48),
        embeddings=EmbeddingsConfig(norm=True, segments=2, width=32),
        head=default_head("fill"),
    ),
    "albert, to classify": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=3,
        shared_layers=True,
        attention=AttentionConfig(4),
        norm=NormConfig(placement="post"),
        feed_forward=FeedForwardConfig(48),
        embeddings=EmbeddingsConfig(norm=True, segments=2, width=32),
        head=default_head("classify", 3),
    ),
    "jina embeddings, to fill": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=2,
        attention=AttentionConfig(4, relative=RelativeConfig("linear")),
        positions=PositionsConfig("none"),
        norm=NormConfig(placement="post"),
        feed_forward=FeedForwardConfig(48, gated=True),
        embeddings=EmbeddingsConfig(norm=True, segments=2),
        head=default_head("fill"),
    ),
    "bloom": TransformerConfig(
        "decoder",
        **SIZES,
        num_decoder_layers=2,
        attention=AttentionConfig(4, relative=RelativeConfig("linear")),
        positions=PositionsConfig("none"),
        feed_forward=FeedForwardConfig(48, "gelu-tanh"),
        embeddings=EmbeddingsConfig(norm=True),
    ),
    "embedding gemma": TransformerConfig(
        "encoder",
        **SIZES,
        num_encoder_layers=2,
        attention=AttentionConfig(
            3, num_kv_heads=1, head_dim=32, qkv_bias=False, output_bias=False, qk_norm=True, window=8, local_layers=(0,)
        ),
        positions=PositionsConfig("rotary", base=1e6, local_base=1e4),
        norm=NormConfig("rms", "sandwich", 1e-6, bias=False),
        feed_forward=FeedForwardConfig(48, "gelu-tanh", gated=True, bias=False),
        embeddings=EmbeddingsConfig(scale=True),
        head=HeadConfig("embed", pooling="mean", dense=True, dense_bias=False, activation="none"),
    ),
    "gpt-neox": TransformerConfig(
        "decoder",
        **SIZES,
        num_decoder_layers=2,
        attention=AttentionConfig(2),
        positions=PositionsConfig("rotary", rotary_dim=8),
        feed_forward=FeedForwardConfig(48, parallel=True),
        head=HeadConfig(tied=False),
    ),
    "ettin": TransformerConfig(
        "decoder",
        **SIZES,
        num_decoder_layers=3,
        attention=AttentionConfig(4, qkv_bias=False, output_bias=False, window=4, local_layers=(1, 2)),
        positions=PositionsConfig("rotary", base=16e4, local_base=1e4),
        norm=NormConfig(bias=False, skips_first=True),
        feed_forward=FeedForwardConfig(48, gated=True, bias=False),
        embeddings=EmbeddingsConfig(norm=True),
        head=HeadConfig(dense=True, dense_bias=False, activation="gelu", norm=True, bias=True),
    ),
    "exaone": TransformerConfig(
        "decoder",
        **SIZES,
        num_decoder_layers=2,
        attention=AttentionConfig(4, num_kv_heads=2, qk_norm=True, qk_norm_of="heads", window=4, local_layers=(0,)),
        positions=PositionsConfig("rotary", unturned_layers=(1,)),
        norm=NormConfig("rms", "output", 1e-6, bias=False),
        residual_scale=0.5,
        feed_forward=FeedForwardConfig(48, "silu", gated=True, bias=False),
        embeddings=EmbeddingsConfig(scale=3.0),
        head=HeadConfig(scale=0.5),
    ),
    # Heads of 26 features that turn, normalised: as wide as the operator does not take them.
    "an odd width, to classify": TransformerConfig(
        "decoder",
        vocab_size=90,
        d_model=104,
        num_decoder_layers=2,
        attention=AttentionConfig(4, num_kv_heads=2, qk_norm=True),
        positions=PositionsConfig("rotary"),
        norm=RMS,
        feed_forward=FeedForwardConfig(48, "silu", gated=True),
        head=HeadConfig("classify", 3, "last"),
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(request.param, tmp_path_factory.mktemp("graphs"))


class Exported:
    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.config = name, FAMILIES[name]
        self.model = random_model(self.config)
        self.graphs = write_graphs(self.model, folder)
        self.graphs.pop("candidates", None)


def test_the_graphs_answer_like_torch(exported: Exported) -> None:
    report = verify(exported.model, open_graphs(exported.graphs), batches=4)

    assert report.max_relative_error < TOLERANCE


def test_attention_is_one_operator_a_layer_and_products_of_one_input_are_joined(exported: Exported) -> None:
    config, graphs = exported.config, exported.graphs
    nodes = {name: onnx.load(graph.path).graph.node for name, graph in graphs.items()}
    cross = config.num_decoder_layers if config.architecture == "encoder_decoder" else 0
    in_decoder = config.num_decoder_layers + cross
    expected = {"encoder": config.num_encoder_layers, "decoder": in_decoder}
    if len(graphs) == 1:
        expected = dict.fromkeys(graphs, config.num_encoder_layers + in_decoder)

    for name, of_graph in nodes.items():
        assert sum(node.op_type == "GroupQueryAttention" for node in of_graph) == expected[name]
        products = Counter(node.input[0] for node in of_graph if node.op_type == "MatMul")
        # A source's keys and values of all layers stay apart.
        assert max(products.values()) == (2 * cross if cross and name == "encoder" else 1)
