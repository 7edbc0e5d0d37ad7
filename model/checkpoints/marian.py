"""Marian (Junczys-Dowmunt et al. 2018) and Pegasus (Zhang et al. 2020): BART's tables, with computed positions."""

from __future__ import annotations

from model.checkpoints.bart import (
    COMPUTED_POSITIONS,
    DEFAULTS,
    FINAL_NORMS,
    HARMLESS,
    OPTIONAL,
    OUTPUT,
    SHARED,
    configure,
)
from model.checkpoints.family import Family, HFConfig, require
from model.config import PositionsConfig, TransformerConfig

WAVES = PositionsConfig("sinusoidal-halves")


def marian_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Marian model."""
    require(config, share_encoder_decoder_embeddings=True)
    if config["decoder_vocab_size"] is not None:
        require(config, decoder_vocab_size=config["vocab_size"])
    return configure(config, WAVES, "post")


def pegasus_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Pegasus: pre-norm."""
    return configure(config, WAVES, "pre")


MARIAN = Family(
    marian_config,
    {**SHARED, **OUTPUT},
    {**DEFAULTS, "vocab_size": 58101, "share_encoder_decoder_embeddings": True, "decoder_vocab_size": None},
    HARMLESS,
    prefixes=("model.",),
    tables=COMPUTED_POSITIONS,
    optional=OPTIONAL,
)
PEGASUS = Family(
    pegasus_config,
    {**SHARED, **OUTPUT, **FINAL_NORMS},
    DEFAULTS,
    HARMLESS,
    prefixes=("model.",),
    tables=COMPUTED_POSITIONS,
    optional=OPTIONAL,
)
