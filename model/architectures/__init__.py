"""The three families: encoder, decoder, encoder–decoder."""

from __future__ import annotations

from model.architectures.decoder import DecoderLM
from model.architectures.encoder import EncoderClassifier
from model.architectures.encoder_decoder import EncoderDecoder
from model.config import Architecture, TransformerConfig

__all__ = ["ARCHITECTURES", "DecoderLM", "EncoderClassifier", "EncoderDecoder", "Transformer", "build"]

Transformer = EncoderClassifier | DecoderLM | EncoderDecoder

ARCHITECTURES: dict[Architecture, type[EncoderClassifier] | type[DecoderLM] | type[EncoderDecoder]] = {
    "encoder": EncoderClassifier,
    "decoder": DecoderLM,
    "encoder_decoder": EncoderDecoder,
}


def build(config: TransformerConfig) -> Transformer:
    """Make the untrained transformer that a configuration describes."""
    return ARCHITECTURES[config.architecture](config)
