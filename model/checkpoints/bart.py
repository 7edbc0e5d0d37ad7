"""Encoder–decoders named alike: BART, and by the same tables mBART, Marian, Pegasus and M2M100.

BART (Lewis et al. 2020) is post-norm, learns its positions, each side its own, and normalises the embeddings. mBART
(Liu et al. 2020; with 50 languages Tang et al. 2020) is the same, pre-norm.
"""

from __future__ import annotations

from collections.abc import Mapping

from model.checkpoints.family import Family, HFConfig, Names, Parts, activation, norms_and_biases, require
from model.checkpoints.fields import field_names
from model.checkpoints.heads import num_labels
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    NormConfig,
    NormPlacement,
    PositionsConfig,
    TransformerConfig,
)

DEFAULTS: Mapping[str, object] = {
    "vocab_size": 50265,
    "d_model": 1024,
    "encoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "max_position_embeddings": 1024,
    "activation_function": "gelu",
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "dropout": 0.1,
}
HARMLESS = (
    # what a family always has, said again by old files
    field_names("add_bias_logits add_final_layer_norm extra_pos_embeddings normalize_before normalize_embedding")
    | field_names("num_hidden_layers static_position_embeddings")
    # what nothing reads any more
    | field_names(
        "force_bos_token_to_be_generated replacing_rate save_step student_decoder_layers student_encoder_layers"
    )
)

WORDS = HeadConfig(bias=True)


def configure(
    config: HFConfig,
    positions: PositionsConfig,
    placement: NormPlacement,
    *,
    norm: bool = False,
    head: HeadConfig = WORDS,
) -> TransformerConfig:
    """Return our configuration; `norm`: of the embeddings."""
    require(config, decoder_attention_heads=config["encoder_attention_heads"])
    require(config, decoder_ffn_dim=config["encoder_ffn_dim"], tie_word_embeddings=True)
    return TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=config["vocab_size"],
        d_model=config["d_model"],
        attention=AttentionConfig(config["encoder_attention_heads"]),
        feed_forward=FeedForwardConfig(config["encoder_ffn_dim"], activation(config["activation_function"])),
        num_encoder_layers=config["encoder_layers"],
        num_decoder_layers=config["decoder_layers"],
        max_positions=config["max_position_embeddings"],
        positions=positions,
        norm=NormConfig(placement=placement),
        embeddings=EmbeddingsConfig(scale=config["scale_embedding"], norm=norm),
        head=head,
        dropout=config["dropout"],
    )


def bart_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a BART."""
    return configure(config, PositionsConfig("learned"), "post", norm=True, head=_head(config))


def _head(config: HFConfig) -> HeadConfig:
    if not any(str(name).endswith("ForSequenceClassification") for name in config.get("architectures") or []):
        return WORDS
    require(config, decoder_start_token_id=config["eos_token_id"])  # the decoder sees the text behind its own end
    return HeadConfig("classify", num_labels(config), "last", dense=True, bias=True)


def mbart_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an mBART."""
    return configure(config, PositionsConfig("learned"), "pre", norm=True)


def _block(side: str, parts: tuple[str, ...]) -> dict[str, str]:
    theirs, ours = f"{side}.layers.{{}}", f"{side}.blocks.{{}}"
    attention = {"k_proj": "key", "v_proj": "value", "q_proj": "query", "out_proj": "output"}
    modules = {"fc1": "feed_forward.expand", "fc2": "feed_forward.contract"}
    modules["final_layer_norm"] = "feed_forward_residual.norm"
    for part in parts:
        name = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}[part]
        modules[f"{part}_layer_norm"] = f"{name}_residual.norm"
        modules |= {f"{part}.{key}": f"{name}.{value}" for key, value in attention.items()}
    return norms_and_biases({f"{theirs}.{key}": f"{ours}.{value}" for key, value in modules.items()})


SHARED: Names = {
    "shared.weight": "embeddings.words.weight",
    "encoder.embed_tokens.weight": "embeddings.words.weight",
    "decoder.embed_tokens.weight": "embeddings.words.weight",
    **_block("encoder", ("self_attn",)),
    **_block("decoder", ("self_attn", "encoder_attn")),
}
OUTPUT: Names = {
    "lm_head.weight": "head.output.weight",
    "final_logits_bias": Parts(("head.bias",), lambda bias: (bias[0],)),
}
LABELS = norms_and_biases(
    {"classification_head.dense": "head.transform.dense", "classification_head.out_proj": "head.output"}
)
OPTIONAL = frozenset({"head.bias"})  # zeros where a file lacks it
FINAL_NORMS = norms_and_biases({f"{side}.layer_norm": f"{side}.final_norm" for side in ("encoder", "decoder")})
COMPUTED_POSITIONS = frozenset({"encoder.embed_positions.weight", "decoder.embed_positions.weight"})

FIRST_POSITION = 2  # BART counts its positions from 2
SIDES = {"encoder": "embeddings", "decoder": "target_embeddings"}
LEARNED_POSITIONS: Names = {
    f"{side}.embed_positions.weight": Parts((f"{ours}.positions.weight",), lambda w: (w[FIRST_POSITION:],))
    for side, ours in SIDES.items()
}
EMBEDDING_NORMS = norms_and_biases({f"{side}.layernorm_embedding": f"{ours}.norm" for side, ours in SIDES.items()})

BART = Family(
    bart_config,
    {**SHARED, **LEARNED_POSITIONS, **EMBEDDING_NORMS},
    {**DEFAULTS, "decoder_start_token_id": 2, "eos_token_id": 2},
    HARMLESS,
    prefixes=("model.",),
    computed=frozenset({"encoder.version", "decoder.version"}),
    optional=OPTIONAL,
    heads={"words": OUTPUT, "classify": LABELS},
    unused={"classify": frozenset(OUTPUT)},  # of the model of words that it was made of
)
MBART = Family(
    mbart_config,
    {**SHARED, **OUTPUT, **LEARNED_POSITIONS, **EMBEDDING_NORMS, **FINAL_NORMS},
    DEFAULTS,
    HARMLESS,
    prefixes=("model.",),
    optional=OPTIONAL,
)
