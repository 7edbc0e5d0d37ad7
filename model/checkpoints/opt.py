"""OPT (Zhang et al. 2022): a pre-norm decoder with ReLU, whose table of positions begins two rows late."""

from __future__ import annotations

from model.checkpoints.decoders import HEADS, UNUSED, decoder_head
from model.checkpoints.family import Family, HFConfig, Names, Parts, activation, norms_and_biases, require
from model.config import AttentionConfig, FeedForwardConfig, NormConfig, TransformerConfig

FIRST_POSITION = 2  # rows of the table that belong to no token


def to_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an OPT; that of 350 M parameters, which has norms behind sums, is refused."""
    require(config, do_layer_norm_before=True, _remove_final_layer_norm=False, layer_norm_elementwise_affine=True)
    if config["word_embed_proj_dim"] is not None:
        require(config, word_embed_proj_dim=config["hidden_size"])
    bias = config["enable_bias"]
    return TransformerConfig(
        architecture="decoder",
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        attention=AttentionConfig(config["num_attention_heads"], qkv_bias=bias, output_bias=bias),
        feed_forward=FeedForwardConfig(config["ffn_dim"], activation(config["activation_function"]), bias=bias),
        num_decoder_layers=config["num_hidden_layers"],
        max_positions=config["max_position_embeddings"],
        head=decoder_head(config),
        dropout=config["dropout"],
        norm=NormConfig(epsilon=1e-5),
    )


DEFAULTS = {
    "vocab_size": 50272,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "ffn_dim": 3072,
    "activation_function": "relu",
    "dropout": 0.1,
    "max_position_embeddings": 2048,
    "do_layer_norm_before": True,
    "_remove_final_layer_norm": False,
    "layer_norm_elementwise_affine": True,
    "word_embed_proj_dim": None,
    "enable_bias": True,
    "tie_word_embeddings": True,
    "is_causal": True,
}

LAYER, BLOCK = "decoder.layers.{}", "decoder.blocks.{}"
NAMES: Names = {
    "decoder.embed_tokens.weight": "embeddings.words.weight",
    "decoder.embed_positions.weight": Parts(("embeddings.positions.weight",), lambda w: (w[FIRST_POSITION:],)),
    **norms_and_biases(
        {
            f"{LAYER}.self_attn.q_proj": f"{BLOCK}.self_attention.query",
            f"{LAYER}.self_attn.k_proj": f"{BLOCK}.self_attention.key",
            f"{LAYER}.self_attn.v_proj": f"{BLOCK}.self_attention.value",
            f"{LAYER}.self_attn.out_proj": f"{BLOCK}.self_attention.output",
            f"{LAYER}.self_attn_layer_norm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.fc1": f"{BLOCK}.feed_forward.expand",
            f"{LAYER}.fc2": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.final_layer_norm": f"{BLOCK}.feed_forward_residual.norm",
            "decoder.final_layer_norm": "decoder.final_norm",
        }
    ),
}

OPT = Family(
    to_config,
    NAMES,
    DEFAULTS,
    prefixes=("model.",),
    computed=frozenset({"decoder.version"}),  # of fairseq's format
    heads=HEADS,
    unused=UNUSED,
)
