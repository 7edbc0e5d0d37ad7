"""EXAONE 4 (LG AI Research 2025): a Llama with norms behind the sublayers, as OLMo 2's, and over each query and key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import HFConfig
from model.checkpoints.fields import unsupported
from model.checkpoints.llama import DEFAULTS, WINDOWLESS, attention, configure, family
from model.checkpoints.olmo import OUTPUT_NORMS
from model.checkpoints.rope import layers_with_window
from model.config import TransformerConfig


def exaone4_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an EXAONE 4: norms behind sublayers; where layers have windows others do not turn."""
    has_windows, layers = config["sliding_window"] is not None, range(config["num_hidden_layers"])
    pattern = config["sliding_window_pattern"]  # which says nothing where there are no windows
    local = _exaone_windows(config, layers, pattern) if has_windows else ()
    made = configure(config, attention(config, qk_norm=True, local=local))
    unturned = tuple(layer for layer in layers if has_windows and layer not in local)
    positions = replace(made.positions, unturned_layers=unturned)
    return replace(made, norm=replace(made.norm, placement="output"), positions=positions)


def _exaone_windows(config: HFConfig, layers: Sequence[int], every: object) -> Sequence[int]:
    if config["layer_types"] is not None:
        return layers_with_window(config, ())
    if not isinstance(every, int) or every < 1:
        raise CheckpointError(unsupported("sliding_window_pattern", every, "it must be at least 1 without layer_types"))
    return [layer for layer in layers if (layer + 1) % every]


EXAONE_DEFAULTS = {**DEFAULTS, "rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4}
EXAONE4 = family(exaone4_config, EXAONE_DEFAULTS, WINDOWLESS, OUTPUT_NORMS)
