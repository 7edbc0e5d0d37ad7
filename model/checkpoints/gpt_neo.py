"""GPT-Neo (Black et al. 2021; TinyStories, Eldan and Li 2023): a GPT-2 whose layers see a window in turns.

Scores are not scaled, queries, keys and values have no biases, and matrices are stored as they are.
"""

from __future__ import annotations

from model.checkpoints.decoders import HEADS, UNUSED, decoder_head
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, activation, norms_and_biases
from model.checkpoints.fields import field_names, unsupported
from model.config import AttentionConfig, FeedForwardConfig, NormConfig, TransformerConfig


def to_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a GPT-Neo."""
    local = _local_layers(config)
    return TransformerConfig(
        architecture="decoder",
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        attention=AttentionConfig(
            config["num_heads"],
            qkv_bias=False,
            scale=1.0,
            window=config["window_size"] if local else None,
            local_layers=local,
        ),
        feed_forward=FeedForwardConfig(
            config["intermediate_size"] or 4 * config["hidden_size"], activation(config["activation_function"])
        ),
        num_decoder_layers=config["num_layers"],
        max_positions=config["max_position_embeddings"],
        norm=NormConfig(epsilon=config["layer_norm_epsilon"]),
        head=decoder_head(config),
        dropout=config["resid_dropout"],
    )


def _local_layers(config: HFConfig) -> tuple[int, ...]:
    """Return the layers with a window; [[["global", "local"], 2]] is global, local, global, local."""
    types = config["attention_types"]
    layers = config["num_layers"]
    has_all = sum(len(group) * times for group, times in types) == layers  # before a list of them is made
    kinds = [kind for group, times in types for _ in range(times) for kind in group] if has_all else []
    if not has_all or set(kinds) - {"global", "local"}:
        wanted = f"it must name num_layers ({layers}) layers, each global or local"
        raise CheckpointError(unsupported("attention_types", types, wanted))
    if (again := config["attention_layers"]) not in (None, kinds):
        raise CheckpointError(unsupported("attention_layers", again, "attention_types say otherwise"))
    return tuple(layer for layer, kind in enumerate(kinds) if kind == "local")


BLOCK = "decoder.blocks.{}"
ATTENTION = "h.{}.attn.attention"

NAMES: Names = {
    "wte.weight": "embeddings.words.weight",
    "wpe.weight": "embeddings.positions.weight",
    **{
        f"{ATTENTION}.{theirs}_proj.weight": f"{BLOCK}.self_attention.{ours}.weight"
        for theirs, ours in {"q": "query", "k": "key", "v": "value"}.items()
    },
    **norms_and_biases(
        {
            f"{ATTENTION}.out_proj": f"{BLOCK}.self_attention.output",
            "h.{}.mlp.c_fc": f"{BLOCK}.feed_forward.expand",
            "h.{}.mlp.c_proj": f"{BLOCK}.feed_forward.contract",
            "h.{}.ln_1": f"{BLOCK}.self_attention_residual.norm",
            "h.{}.ln_2": f"{BLOCK}.feed_forward_residual.norm",
            "ln_f": "decoder.final_norm",
        }
    ),
}

DEFAULTS = {
    "attention_types": [[["global", "local"], 12]],
    "attention_layers": None,  # the same again
    "window_size": 256,
    "intermediate_size": None,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
    "resid_dropout": 0.0,
    "is_causal": True,
}
# A sliding window that may not be used, and a head for multiple choice.
HARMLESS = field_names("window_size summary_activation summary_proj_to_labels summary_type summary_use_proj")

GPT_NEO = Family(
    to_config,
    NAMES,
    DEFAULTS,
    HARMLESS,
    prefixes=("transformer.",),
    computed=frozenset({f"{ATTENTION}.bias", f"{ATTENTION}.masked_bias"}),  # the masks
    heads=HEADS,
    unused=UNUSED,
)
