"""T5 and its version 1.1 (Raffel et al. 2020), Flan-T5 (Chung et al. 2022), mT5 (Xue et al. 2021).

Pre-norm by the root mean square, no biases, no scaling of scores, and positions only as a bias of each stack's scores.
The encoder alone makes vectors (Ni et al. 2022, Sentence-T5 and GTR).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints.family import Family, HFConfig, Names, activation
from model.checkpoints.heads import head_kind
from model.config import (
    AttentionConfig,
    FeedForwardConfig,
    HeadConfig,
    HeadKind,
    NormConfig,
    PositionsConfig,
    RelativeConfig,
    TransformerConfig,
)

UNSTATED = "as tie_word_embeddings says"


def t5_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a T5.

    The first version scales hidden states before the output. Version 1.1 does not, which its files tell by
    `tie_word_embeddings: false`, or, when written by later software, by `scale_decoder_outputs`.
    """
    is_first = config["tie_word_embeddings"] is not False
    stated = config["scale_decoder_outputs"]  # null means no
    scales = is_first if stated == UNSTATED else bool(stated)
    return _to_config(config, HeadConfig(scale=config["d_model"] ** -0.5 if scales else None))


def mt5_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an mT5, which never scales."""
    return _to_config(config, HeadConfig())


def encoder_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a T5's or mT5's encoder."""
    head = HeadConfig(head_kind(config, ENCODER_HEADS))
    return replace(_to_config(config, HeadConfig()), architecture="encoder", num_decoder_layers=0, head=head)


def _to_config(config: HFConfig, head: HeadConfig) -> TransformerConfig:
    buckets, farthest = config["relative_attention_num_buckets"], config["relative_attention_max_distance"]
    kind = config["feed_forward_proj"]  # as "relu" or "gated-gelu", by which gelu_new is meant
    name = {"gated-gelu": "gelu_new"}.get(kind, kind.removeprefix("gated-"))
    return TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=config["vocab_size"],
        d_model=config["d_model"],
        attention=AttentionConfig(
            config["num_heads"],
            head_dim=config["d_kv"],
            qkv_bias=False,
            output_bias=False,
            scale=1.0,
            relative=RelativeConfig("bucketed", buckets, farthest),
        ),
        feed_forward=FeedForwardConfig(
            config["d_ff"], activation(config["dense_act_fn"] or name), gated=kind.startswith("gated-"), bias=False
        ),
        num_encoder_layers=config["num_layers"],
        num_decoder_layers=config["num_decoder_layers"] or config["num_layers"],
        max_positions=config["n_positions"],
        positions=PositionsConfig("none"),
        norm=NormConfig("rms", epsilon=config["layer_norm_epsilon"], bias=False),
        head=head,
        dropout=config["dropout_rate"],
    )


ATTENTION = {"q": "query", "k": "key", "v": "value", "o": "output"}
FEED_FORWARD = {"wi": "expand", "wi_0": "gate", "wi_1": "expand", "wo": "contract"}


def _sublayer(theirs: str, part: str, ours: str, modules: Mapping[str, str]) -> dict[str, str]:
    weights = {f"{theirs}.{part}.{key}.weight": f"{ours}.{value}.weight" for key, value in modules.items()}
    return {f"{theirs}.layer_norm.weight": f"{ours}_residual.norm.weight", **weights}


ENCODER, DECODER = ("encoder.block.{}.layer", "encoder.blocks.{}"), ("decoder.block.{}.layer", "decoder.blocks.{}")

NAMES: Names = {
    "shared.weight": "embeddings.words.weight",
    "encoder.embed_tokens.weight": "embeddings.words.weight",
    "decoder.embed_tokens.weight": "embeddings.words.weight",
    "lm_head.weight": "head.output.weight",
    **_sublayer(f"{ENCODER[0]}.0", "SelfAttention", f"{ENCODER[1]}.self_attention", ATTENTION),
    **_sublayer(f"{ENCODER[0]}.1", "DenseReluDense", f"{ENCODER[1]}.feed_forward", FEED_FORWARD),
    **_sublayer(f"{DECODER[0]}.0", "SelfAttention", f"{DECODER[1]}.self_attention", ATTENTION),
    **_sublayer(f"{DECODER[0]}.1", "EncDecAttention", f"{DECODER[1]}.cross_attention", ATTENTION),
    **_sublayer(f"{DECODER[0]}.2", "DenseReluDense", f"{DECODER[1]}.feed_forward", FEED_FORWARD),
    **{
        f"{side}.block.{{}}.layer.0.SelfAttention.relative_attention_bias.weight": f"{side}.relative.table.weight"
        for side in ("encoder", "decoder")
    },
    "encoder.final_layer_norm.weight": "encoder.final_norm.weight",
    "decoder.final_layer_norm.weight": "decoder.final_norm.weight",
}

DEFAULTS: Mapping[str, object] = {
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_decoder_layers": None,
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
    "dense_act_fn": None,
    "tie_word_embeddings": True,
    "scale_decoder_outputs": UNSTATED,
    "n_positions": 512,  # of no class any more: how long texts were when the published ones were trained
    "dropout_rate": 0.1,
}
MT5_DEFAULTS = {**DEFAULTS, "vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6}
HARMLESS = frozenset({"is_gated_act", "scale_decoder_outputs", "tie_word_embeddings"})
# The first version's files have a table for cross-attention, which was never used.
UNUSED = frozenset({"decoder.block.{}.layer.1.EncDecAttention.relative_attention_bias.weight"})

ENCODER_HEADS: Mapping[HeadKind, Names] = {"embed": {}}
ENCODER_NAMES = {
    theirs: ours for theirs, ours in NAMES.items() if theirs.startswith("encoder.") or theirs == "shared.weight"
}

T5 = Family(t5_config, NAMES, DEFAULTS, HARMLESS, computed=UNUSED)
MT5 = Family(mt5_config, NAMES, {**MT5_DEFAULTS, "feed_forward_proj": "gated-gelu"}, HARMLESS, computed=UNUSED)
T5_ENCODER = Family(
    encoder_config,
    ENCODER_NAMES,
    DEFAULTS,
    HARMLESS,
    computed=UNUSED | (NAMES.keys() - ENCODER_NAMES.keys()),  # of a whole checkpoint, whose vectors do not need them
    heads=ENCODER_HEADS,
)
MT5_ENCODER = replace(T5_ENCODER, defaults=MT5.defaults)
