"""NomicBERT (Nussbaum et al. 2024; nomic-embed-text): a BERT with rotary positions, SwiGLU and no biases.

Files have the fields of the code that it was published with, or those of transformers, or both. The body's tensors have
the names of either, those of heads transformers' alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.checkpoints import bert
from model.checkpoints.family import (
    Family,
    HFConfig,
    Names,
    activation,
    attention_maps,
    joined,
    norms_and_biases,
    projections,
    require,
)
from model.checkpoints.fields import either, field_names
from model.checkpoints.rope import rotary_positions
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadKind,
    NormConfig,
    TransformerConfig,
)

# The fields of transformers, by those of the code that it was published with.
OLD_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "layer_norm_epsilon": "layer_norm_eps",
    "max_trained_positions": "max_position_embeddings",  # n_positions are more than it was trained on
}
OLD_VALUES: dict[str, Any] = {  # of that code's fields, the only ones that transformers knows
    "activation_function": "swiglu",
    "causal": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "use_rms_norm": False,
}


def nomic_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a NomicBERT."""
    require(config, **OLD_VALUES)
    sizes = {name: either(config, old, name, CLASS_DEFAULTS[name]) for old, name in OLD_NAMES.items()}
    waves = {name: config[name] for name in ("rope_parameters", "rope_scaling", "rope_local_base_freq")}
    waves |= {"max_position_embeddings": sizes["max_position_embeddings"], "rope_theta": config["rotary_emb_base"]}
    name = activation(config["hidden_act"])
    return TransformerConfig(
        architecture="encoder",
        vocab_size=config["vocab_size"],
        d_model=sizes["hidden_size"],
        attention=AttentionConfig(
            sizes["num_attention_heads"], head_dim=config["head_dim"], qkv_bias=False, output_bias=False
        ),
        feed_forward=FeedForwardConfig(sizes["intermediate_size"], name, gated=True, bias=False),
        num_encoder_layers=sizes["num_hidden_layers"],
        max_positions=sizes["max_position_embeddings"],
        positions=rotary_positions(waves, has_windows=False, by_type=False),
        norm=NormConfig(placement="post", epsilon=sizes["layer_norm_eps"]),
        embeddings=EmbeddingsConfig(norm=True, segments=config["type_vocab_size"]),
        head=bert.bert_head(config, HEADS),
        dropout=config["hidden_dropout_prob"],
    )


CLASS_DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 2048,
    "layer_norm_eps": 1e-12,
}
DEFAULTS = {
    **dict.fromkeys([*OLD_NAMES, *OLD_NAMES.values()]),
    **OLD_VALUES,
    "vocab_size": 30528,
    "hidden_act": "silu",
    "hidden_dropout_prob": 0.0,
    "head_dim": None,
    "type_vocab_size": 2,
    "tie_word_embeddings": True,
    "rope_parameters": None,
    "rope_scaling": None,
    "rope_local_base_freq": None,
    "rotary_emb_base": 1000.0,
}
HARMLESS = (
    field_names("n_positions auto_map pad_vocab_size_multiple parallel_block_tied_norm reorder_and_upcast_attn")
    # how it was computed
    | field_names("dense_seq_output fused_bias_fc fused_dropout_add_ln use_flash_attn use_xentropy last_layer_subset")
    # of heads that it has not
    | field_names("summary_activation summary_proj_to_labels summary_type summary_use_proj")
)

LAYER, OLD_LAYER, BLOCK = "layers.{}", "encoder.layers.{}", "encoder.blocks.{}"
WEIGHTS = {
    **projections(f"{LAYER}.self_attn", f"{BLOCK}.self_attention"),
    f"{LAYER}.mlp.up_proj": f"{BLOCK}.feed_forward.expand",
    f"{LAYER}.mlp.gate_proj": f"{BLOCK}.feed_forward.gate",
    f"{LAYER}.mlp.down_proj": f"{BLOCK}.feed_forward.contract",
    f"{OLD_LAYER}.attn.out_proj": f"{BLOCK}.self_attention.output",
    f"{OLD_LAYER}.mlp.fc11": f"{BLOCK}.feed_forward.expand",
    f"{OLD_LAYER}.mlp.fc12": f"{BLOCK}.feed_forward.gate",
    f"{OLD_LAYER}.mlp.fc2": f"{BLOCK}.feed_forward.contract",
}
BODY: Names = {
    "embeddings.word_embeddings.weight": "embeddings.words.weight",
    "embeddings.token_type_embeddings.weight": "embeddings.segments.weight",
    **{f"{theirs}.weight": f"{ours}.weight" for theirs, ours in WEIGHTS.items()},
    **joined(f"{OLD_LAYER}.attn.Wqkv", *attention_maps(f"{BLOCK}.self_attention")),
    **norms_and_biases(
        {
            "embeddings.LayerNorm": "embeddings.norm",
            "emb_ln": "embeddings.norm",
            f"{LAYER}.post_attention_layernorm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.post_mlp_layernorm": f"{BLOCK}.feed_forward_residual.norm",
            f"{OLD_LAYER}.norm1": f"{BLOCK}.self_attention_residual.norm",
            f"{OLD_LAYER}.norm2": f"{BLOCK}.feed_forward_residual.norm",
        }
    ),
}
FILL: Names = {
    **{name: target for name, target in bert.FILL.items() if "LayerNorm" not in name},
    **norms_and_biases({"cls.predictions.transform.layer_norm": "head.word_transform.norm"}),
}
HEADS: Mapping[HeadKind, Names] = {
    "classify": bert.HEADS["classify"],
    "tag": bert.HEADS["tag"],
    "fill": FILL,
    "embed": {},
}

NOMIC_BERT = Family(
    nomic_config,
    BODY,
    DEFAULTS,
    HARMLESS,
    prefixes=("nomic_bert.",),
    heads=HEADS,
    unused={"embed": frozenset({**bert.POOLER, **FILL})},
)
