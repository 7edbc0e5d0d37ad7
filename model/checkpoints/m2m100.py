"""M2M100 (Fan et al. 2020) and NLLB (NLLB Team 2022), one class: pre-norm, BART's tables, fairseq's waves."""

from __future__ import annotations

from model.checkpoints.bart import COMPUTED_POSITIONS, DEFAULTS, FINAL_NORMS, HARMLESS, OUTPUT, SHARED, configure
from model.checkpoints.family import Family, HFConfig
from model.config import HeadConfig, PositionsConfig, TransformerConfig


def to_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration; the first position is the one behind that of padding."""
    waves = PositionsConfig("sinusoidal-fairseq", offset=config["pad_token_id"] + 1)
    return configure(config, waves, "pre", head=HeadConfig())


M2M100 = Family(
    to_config,
    {**SHARED, **OUTPUT, **FINAL_NORMS},
    {**DEFAULTS, "vocab_size": 128112, "activation_function": "relu", "scale_embedding": True, "pad_token_id": 1},
    HARMLESS,
    prefixes=("model.",),
    computed=frozenset({*COMPUTED_POSITIONS, "encoder.embed_positions.weights", "decoder.embed_positions.weights"}),
)
