"""ERNIE 4.5 (Baidu 2025), dense: a Llama in which neighbouring features turn together."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from model.checkpoints.family import HFConfig, Names, Parts
from model.checkpoints.fields import field_names
from model.checkpoints.llama import BLOCK, DEFAULTS, NAMES, attention, configure, family
from model.config import TransformerConfig


def ernie_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an ERNIE 4.5, where neighbouring features turn together: see `TURNING_PAIRS`."""
    made, bias = configure(config, attention(config, bias=config["use_bias"])), config["use_bias"]
    return replace(made, feed_forward=replace(made.feed_forward, bias=bias))


def _in_halves(heads: Tensor) -> tuple[Tensor, ...]:
    """Put the first of each pair of neighbouring rows into the first half of a head, (heads, head_dim, …)."""
    return (torch.cat((heads[:, ::2], heads[:, 1::2]), dim=1).flatten(0, 1),)


# The features of queries and keys that turn together are neighbours; ours are as far apart as half a head.
TURNING_PAIRS: Names = {
    f"layers.{{}}.self_attn.{theirs}_proj.{part}": Parts((f"{BLOCK}.self_attention.{ours}.{part}",), _in_halves, "head")
    for theirs, ours in (("q", "query"), ("k", "key"))
    for part in ("weight", "bias")
}

ERNIE_DEFAULTS = {
    **DEFAULTS,
    "head_dim": 128,
    "num_key_value_heads": 2,
    "use_bias": False,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_theta": 500_000.0,
}
ERNIE45 = family(ernie_config, ERNIE_DEFAULTS, field_names("auto_map"), {**NAMES, **TURNING_PAIRS})
