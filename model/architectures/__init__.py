"""The three families, encoder, decoder and encoder–decoder, and the encoder of images."""

from __future__ import annotations

from model.architectures.decoder import DecoderLM
from model.architectures.encoder import DecoderReader, TextEncoder, TextReader
from model.architectures.encoder_decoder import EncoderDecoder, EncoderDecoderReader
from model.architectures.vision import VisionTransformer
from model.config import TransformerConfig

__all__ = [
    "DecoderLM",
    "DecoderReader",
    "EncoderDecoder",
    "EncoderDecoderReader",
    "TextEncoder",
    "TextReader",
    "Transformer",
    "VisionTransformer",
    "build",
]

Transformer = TextReader | DecoderLM | EncoderDecoder | VisionTransformer


def build(config: TransformerConfig) -> Transformer:
    """Make the untrained transformer that a configuration describes."""
    if config.architecture == "encoder":
        return TextEncoder(config)
    if config.architecture == "vision":
        return VisionTransformer(config)
    writes = config.head.kind == "words"
    if config.architecture == "decoder":
        return DecoderLM(config) if writes else DecoderReader(config)
    return EncoderDecoder(config) if writes else EncoderDecoderReader(config)
