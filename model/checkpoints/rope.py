"""Rotary positions and windows, as a config.json has them.

Older files have `rope_theta`, `rope_scaling` and `rope_local_base_freq`; newer ones `rope_parameters`, of each layer
type where those differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import HFConfig
from model.checkpoints.fields import unsupported
from model.config import PositionsConfig, RotaryScaling

EVERYWHERE, WINDOW = LAYER_TYPES = ("full_attention", "sliding_attention")
SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
KINDS = {  # with the fields that each has
    "default": {"rope_theta"},
    "linear": {"rope_theta", "factor"},
    "llama3": {"rope_theta", *SCALING},
}


def layers_with_window(config: HFConfig, otherwise: Sequence[int]) -> tuple[int, ...]:
    """Return the layers that have a window: those of that type, where `layer_types` has them all, or others."""
    types = config["layer_types"]
    if types is None:
        return tuple(otherwise)
    if set(types) - set(LAYER_TYPES) or len(types) != config["num_hidden_layers"]:
        raise CheckpointError(unsupported("layer_types", types, f"each layer must be one of {', '.join(LAYER_TYPES)}"))
    return tuple(layer for layer, kind in enumerate(types) if kind == WINDOW)


def rotary_positions(config: HFConfig, *, has_windows: bool, by_type: bool) -> PositionsConfig:
    """Return the rotation of the layers that see everything, and that of those with a window.

    `by_type`: whether the family has parameters for each type of layer. Raises `CheckpointError` for waves that are
    scaled in a way that is not known, or in layers with a window, and where transformers would read a file otherwise.
    """
    given: dict[str, Any] = config["rope_parameters"] or {}
    if given and by_type != any(name in given for name in LAYER_TYPES):
        wanted = f"this family has them {'for each type of layer' if by_type else 'for all layers together'}"
        raise CheckpointError(unsupported("rope_parameters", given, wanted))
    theta, scaled = {"rope_theta": config["rope_theta"]}, config["rope_scaling"] or {}
    full: dict[str, Any] = {**theta, **given.get(EVERYWHERE, given), **scaled}
    if by_type and scaled and "rope_type" not in scaled:
        raise CheckpointError(unsupported("rope_scaling", scaled, "it must have a rope_type"))
    local, name = full, "rope_local_base_freq"
    if config[name] is not None and not by_type:
        raise CheckpointError(unsupported(name, config[name], "all layers of this family have the same waves"))
    if config[name] is not None:
        local = {"rope_theta": config[name], **given.get(WINDOW, {})}
    scaling = _scaling(full, config)
    alone = {**theta, **scaled}  # which transformers takes, where both are given
    if given and scaled and (full["rope_theta"], scaling) != (alone["rope_theta"], _scaling(alone, config)):
        raise CheckpointError(unsupported("rope_scaling", scaled, "rope_parameters say otherwise"))
    if not has_windows:
        return PositionsConfig("rotary", base=full["rope_theta"], scaling=scaling)
    if _scaling(local, config) is not None:
        raise CheckpointError(unsupported("rope_parameters", local, "layers with a window cannot have RoPE scaling"))
    return PositionsConfig("rotary", base=full["rope_theta"], local_base=local["rope_theta"], scaling=scaling)


def _scaling(rope: dict[str, Any], config: HFConfig) -> RotaryScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in KINDS:
        raise CheckpointError(unsupported("rope_type", kind, f"only {', '.join(KINDS)} are supported"))
    for name, value in rope.items():
        if name not in {"rope_type", "type", *KINDS[kind]} and value is not None:
            raise CheckpointError(unsupported(f"rope_parameters.{name}", value, f"rope_type {kind} has no such field"))
    if kind == "default":
        return None
    if kind == "linear":
        return RotaryScaling(rope["factor"])
    original = rope.get("original_max_position_embeddings") or config["max_position_embeddings"]
    return RotaryScaling(rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"], original)
