from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from model.config import SIZES, ConfigError, TransformerConfig

BASE = SIZES["transformer-base"]


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("architecture", "rnn", "one of encoder, decoder, encoder_decoder"),
        ("activation", "swish", "one of relu, gelu"),
        ("positions", "rotary", "one of sinusoidal, sinusoidal-halves, learned"),
        ("norm_placement", "middle", "one of pre, post"),
        ("vocab_size", 0, "at least 1"),
        ("num_labels", -1, "at least 0"),
        ("d_model", 500, "a multiple of num_heads (8)"),
        ("num_kv_heads", 3, "a divisor of num_heads (8)"),
        ("num_kv_heads", 0, "a divisor of num_heads (8)"),
        ("dropout", 1.0, "less than 1"),
        ("norm_epsilon", 0.0, "greater than 0"),
        ("num_decoder_layers", 0, "at least 1 in architecture encoder_decoder"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(BASE, **{field: value})

    assert f"{field} is {value!r}" in str(error.value)
    assert allowed in str(error.value)


def test_an_encoder_has_no_decoder_layers() -> None:
    with pytest.raises(ConfigError, match="num_decoder_layers is 6; it must be 0 in architecture encoder"):
        replace(BASE, architecture="encoder")


def test_sinusoidal_positions_need_an_even_width() -> None:
    with pytest.raises(ConfigError, match="even"):
        replace(BASE, d_model=33, num_heads=3)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("vocab_size", 10, "0, for images have no vocabulary"),
        ("image_size", 225, "a multiple of patch_size (16)"),
        ("patch_overlap", -1, "at least 0"),
        ("max_positions", 196, "197: CLS and 196 patches"),
        ("d_model", 36 * 12 + 6, "a multiple of 4"),
    ],
)
def test_a_wrong_field_of_a_model_of_images_is_named(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(SIZES["vit-base"], num_heads=6, **{field: value})

    assert f"{field} is {value}" in str(error.value)
    assert allowed in str(error.value)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        BASE.d_model = 3  # type: ignore[misc]  # that is the point


def test_a_config_survives_being_written_and_read() -> None:
    assert TransformerConfig(**BASE.to_dict()) == BASE


def test_the_original_transformer_has_eight_heads_of_64() -> None:
    assert (BASE.num_heads, BASE.head_dim, BASE.kv_heads) == (8, 64, 8)
