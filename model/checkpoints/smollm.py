"""SmolLM3 (Hugging Face 2025): a Llama without positions in some layers (NoPE)."""

from __future__ import annotations

from dataclasses import replace

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import HFConfig, require
from model.checkpoints.fields import unsupported
from model.checkpoints.llama import DEFAULTS, WINDOWLESS, attention, configure, family
from model.config import TransformerConfig


def smollm3_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a SmolLM3: in every fourth layer nothing turns, unless the file says otherwise."""
    require(config, use_sliding_window=False)
    types = config["layer_types"] or []
    if set(types) - {"full_attention"}:  # which transformers goes by, whatever the field before says
        raise CheckpointError(unsupported("layer_types", types, "only full_attention is supported"))
    made = configure(config, attention(config, bias=config["attention_bias"]))
    count, every, turning = config["num_hidden_layers"], config["no_rope_layer_interval"], config["no_rope_layers"]
    if turning is None and every < 1:
        raise CheckpointError(unsupported("no_rope_layer_interval", every, "it must be at least 1"))
    if turning is None:
        turning = [(layer + 1) % every for layer in range(count)]
    if len(turning) != count:
        raise CheckpointError(unsupported("no_rope_layers", turning, f"it must have a number for each layer ({count})"))
    unturned = tuple(layer for layer, turns in enumerate(turning) if not turns)
    return replace(made, positions=replace(made.positions, unturned_layers=unturned))


SMOLLM_DEFAULTS = {
    **DEFAULTS,
    "num_key_value_heads": 4,
    "use_sliding_window": False,
    "layer_types": None,
    "no_rope_layers": None,
    "no_rope_layer_interval": 4,
    "rope_theta": 2_000_000.0,
    "tie_word_embeddings": True,
}
SMOLLM3 = family(smollm3_config, SMOLLM_DEFAULTS, WINDOWLESS)
