"""The sizes of published decoders, by the names that they are published under."""

from __future__ import annotations

from dataclasses import replace

from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    NormConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryScaling,
    TransformerConfig,
)


def _gpt2(d_model: int, num_heads: int, num_layers: int) -> TransformerConfig:
    return TransformerConfig(
        architecture="decoder",
        vocab_size=50257,
        d_model=d_model,
        attention=AttentionConfig(num_heads),
        feed_forward=FeedForwardConfig(4 * d_model, "gelu-tanh"),
        num_decoder_layers=num_layers,
        max_positions=1024,
    )


def _gpt_neo(d_model: int, num_heads: int, num_layers: int) -> TransformerConfig:
    local = tuple(range(1, num_layers, 2))  # every second layer sees a window
    return TransformerConfig(
        architecture="decoder",
        vocab_size=50257,
        d_model=d_model,
        attention=AttentionConfig(num_heads, qkv_bias=False, scale=1.0, window=256, local_layers=local),
        feed_forward=FeedForwardConfig(4 * d_model, "gelu-tanh"),
        num_decoder_layers=num_layers,
        max_positions=2048,
        dropout=0.0,
    )


def _pythia(d_model: int, num_heads: int, num_layers: int) -> TransformerConfig:
    return TransformerConfig(
        architecture="decoder",
        vocab_size=50304,
        d_model=d_model,
        attention=AttentionConfig(num_heads),
        feed_forward=FeedForwardConfig(4 * d_model, parallel=True),
        num_decoder_layers=num_layers,
        max_positions=2048,
        positions=PositionsConfig("rotary", rotary_dim=d_model // num_heads // 4),
        head=HeadConfig(tied=False),
        dropout=0.0,
    )


def _llama(
    d_model: int,
    d_ff: int,
    num_layers: int,
    attention: AttentionConfig,
    positions: PositionsConfig,
    *,
    vocab_size: int,
    max_positions: int,
    epsilon: float,
    is_gemma: bool = False,
) -> TransformerConfig:
    return TransformerConfig(
        architecture="decoder",
        vocab_size=vocab_size,
        d_model=d_model,
        attention=attention,
        feed_forward=FeedForwardConfig(d_ff, "gelu-tanh" if is_gemma else "silu", gated=True, bias=False),
        num_decoder_layers=num_layers,
        max_positions=max_positions,
        positions=positions,
        norm=NormConfig("rms", "sandwich" if is_gemma else "pre", epsilon, bias=False),
        embeddings=EmbeddingsConfig(scale=is_gemma),
        head=HeadConfig(),
        dropout=0.0,
    )


def _smollm2(d_model: int, d_ff: int, num_layers: int, heads: tuple[int, int]) -> TransformerConfig:
    attention = AttentionConfig(*heads, qkv_bias=False, output_bias=False)
    positions = PositionsConfig("rotary", base=100_000.0)
    return _llama(d_model, d_ff, num_layers, attention, positions, vocab_size=49152, max_positions=8192, epsilon=1e-5)


def _gemma3(d_model: int, d_ff: int, num_layers: int, window: int) -> TransformerConfig:
    local = tuple(layer for layer in range(num_layers) if (layer + 1) % 6)  # every sixth layer sees everything
    attention = AttentionConfig(
        num_heads=4,
        num_kv_heads=1,
        head_dim=256,
        qkv_bias=False,
        output_bias=False,
        qk_norm=True,
        scale=256**-0.5,
        window=window,
        local_layers=local,
    )
    positions = PositionsConfig("rotary", base=1_000_000.0, local_base=10_000.0)
    sizes = {"vocab_size": 262144, "max_positions": 32768}
    return _llama(d_model, d_ff, num_layers, attention, positions, **sizes, epsilon=1e-6, is_gemma=True)


# Grattafiori et al. 2024, "The Llama 3 Herd of Models"; version 3.2.
_LLAMA3 = _llama(
    2048,
    8192,
    16,
    AttentionConfig(32, 8, 64, qkv_bias=False, output_bias=False),
    PositionsConfig("rotary", base=500_000.0, scaling=RotaryScaling(32.0, 1.0, 4.0, 8192)),
    vocab_size=128256,
    max_positions=131072,
    epsilon=1e-5,
)
# Qwen Team 2024 and 2025, the technical reports of Qwen2.5 and Qwen3.
_QWEN25 = _llama(
    896,
    4864,
    24,
    AttentionConfig(14, 2, output_bias=False),
    PositionsConfig("rotary", base=1_000_000.0),
    vocab_size=151936,
    max_positions=32768,
    epsilon=1e-6,
)
_QWEN3 = _llama(
    1024,
    3072,
    28,
    AttentionConfig(16, 8, 128, qkv_bias=False, output_bias=False, qk_norm=True),
    PositionsConfig("rotary", base=1_000_000.0),
    vocab_size=151936,
    max_positions=40960,
    epsilon=1e-6,
)

# BigScience 2022.
_BLOOM = TransformerConfig(
    architecture="decoder",
    vocab_size=250880,
    d_model=1024,
    attention=AttentionConfig(16, relative=RelativeConfig("linear")),
    feed_forward=FeedForwardConfig(4096, "gelu-tanh"),
    num_decoder_layers=24,
    max_positions=2048,
    positions=PositionsConfig("none"),
    embeddings=EmbeddingsConfig(norm=True),
    dropout=0.0,
)

DECODERS: dict[str, TransformerConfig] = {
    # Radford et al. 2019; Sanh et al. 2019.
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 16, 24),
    "gpt2-large": _gpt2(1280, 20, 36),
    "gpt2-xl": _gpt2(1600, 25, 48),
    "distilgpt2": _gpt2(768, 12, 6),
    # Brown et al. 2020, table 2.1; every second layer sees a band alone there, whose width is not published.
    "gpt3": replace(_gpt2(12288, 96, 96), max_positions=2048),
    # Black et al. 2021; Eldan and Li 2023.
    "gpt-neo-125m": _gpt_neo(768, 12, 12),
    "tinystories-1m": _gpt_neo(64, 16, 8),
    "tinystories-33m": _gpt_neo(768, 16, 4),
    # Zhang et al. 2022.
    "opt-125m": replace(
        _gpt2(768, 12, 12), vocab_size=50272, feed_forward=FeedForwardConfig(3072, "relu"), max_positions=2048
    ),
    # Biderman et al. 2023.
    "bloom-560m": _BLOOM,
    "pythia-160m": _pythia(768, 12, 12),
    "pythia-410m": _pythia(1024, 16, 24),
    "llama-3.2-1b": _LLAMA3,
    # Ben Allal et al. 2025.
    "smollm2-135m": _smollm2(576, 1536, 30, (9, 3)),
    "smollm2-360m": _smollm2(960, 2560, 32, (15, 5)),
    "qwen2.5-0.5b": _QWEN25,
    "qwen3-0.6b": _QWEN3,
    # Gemma Team 2025.
    "gemma-3-270m": _gemma3(640, 2048, 18, 512),
    "gemma-3-1b": _gemma3(1152, 6912, 26, 512),
}
