from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from model.architectures import build
from model.checked import ConfigError
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
    VisionConfig,
)
from model.package import Manifest
from model.sizes import SIZES

BASE = SIZES["transformer-base"]
PACKAGES = Path(__file__).parents[2] / "model" / "packages"


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("architecture", "rnn", "one of encoder, decoder, encoder_decoder"),
        ("vocab_size", 0, "at least 1"),
        ("d_model", 500, "a multiple of attention.num_heads (8)"),
        ("dropout", 1.0, "less than 1"),
        ("num_decoder_layers", 0, "at least 1 in architecture encoder_decoder"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(BASE, **{field: value})

    assert f"{field} is {value!r}" in str(error.value)
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    ("group", "fields", "words"),
    [
        (AttentionConfig, {"num_heads": 8, "num_kv_heads": 3}, "attention.num_kv_heads is 3; it must be a divisor of"),
        (AttentionConfig, {"num_heads": 8, "num_kv_heads": 0}, "attention.num_kv_heads is 0"),
        (AttentionConfig, {"num_heads": 8, "window": 4}, "attention.local_layers is (); it must be of layers"),
        (AttentionConfig, {"num_heads": 8, "window": 4, "local_layers": (1, 0)}, "each once, in order"),
        (EmbeddingsConfig, {"width": 0}, "embeddings.width is 0; it must be at least 1"),
        (RelativeConfig, {"kind": "alibi"}, "attention.relative.kind is 'alibi'; it must be one of bucketed"),
        (RelativeConfig, {"kind": "bucketed", "num_buckets": 5}, "num_buckets is 5; it must be even"),
        (
            FeedForwardConfig,
            {"d_ff": 8, "activation": "swish"},
            "feed_forward.activation is 'swish'; it must be one of",
        ),
        (PositionsConfig, {"kind": "alibi"}, "positions.kind is 'alibi'; it must be one of sinusoidal"),
        (PositionsConfig, {"offset": 2}, "positions.offset is 2; it must be 0, or more of computed waves"),
        (PositionsConfig, {"local_base": 10.0}, "positions.local_base is 10.0; it must be None unless"),
        (NormConfig, {"placement": "middle"}, "norm.placement is 'middle'; it must be one of pre, post, sandwich"),
        (NormConfig, {"epsilon": 0.0}, "norm.epsilon is 0.0; it must be greater than 0"),
        (NormConfig, {"kind": "rms"}, "norm.bias is True; it must be False where kind is rms"),
        (HeadConfig, {"num_labels": -1}, "head.num_labels is -1; it must be at least 0"),
        (HeadConfig, {"kind": "classify", "pooling": "weighted"}, "head.pooling is 'weighted'"),
        (HeadConfig, {"kind": "embed", "pooling": "weighted", "dense": True}, "head.dense is True"),
        (HeadConfig, {"kind": "embed", "pooling": "weighted", "norm": True}, "head.norm is True"),
    ],
)
def test_a_wrong_field_of_a_group_is_named_with_its_group(group: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        group(**fields)

    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head": HeadConfig("tag", 2)}, "head.kind is 'tag'; it must be one of words, classify in encoder_decoder"),
        ({"attention": AttentionConfig(8, window=4, local_layers=(6,))}, r"local_layers is (6,); it must be 0 to 5"),
        ({"attention": AttentionConfig(8, relative=RelativeConfig("disentangled"))}, "relative.kind is 'disentangled'"),
        (
            {
                "architecture": "encoder",
                "num_decoder_layers": 0,
                "num_encoder_layers": 2,
                "attention": AttentionConfig(8, qk_norm=True, relative=RelativeConfig("disentangled")),
                "head": HeadConfig("embed"),
            },
            "relative.kind is 'disentangled'; it must be bucketed or linear where positions turn or queries are",
        ),
        (
            {"d_model": 2, "attention": AttentionConfig(1), "positions": PositionsConfig("sinusoidal-fairseq")},
            "d_model is 2; it must be more than 2",
        ),
        (
            {"architecture": "encoder", "num_decoder_layers": 0, "head": HeadConfig("answer")},
            "head.num_labels is 0; it must be 2 in a head of kind answer",
        ),
        ({"head": HeadConfig("classify")}, "head.num_labels is 0; it must be at least 1"),
        (
            {
                "attention": AttentionConfig(8, num_kv_heads=2, relative=RelativeConfig("disentangled")),
                "architecture": "encoder",
                "num_decoder_layers": 0,
                "head": HeadConfig("classify", 2),
            },
            "num_kv_heads is 2; it must be left out, or num_heads (8), where relative.kind is disentangled",
        ),
        ({"attention": AttentionConfig(8, head_dim=7), "positions": PositionsConfig("rotary")}, "an even width of at"),
        ({"positions": PositionsConfig("rotary", rotary_dim=80)}, "positions.rotary_dim is 80"),
        (
            {"feed_forward": FeedForwardConfig(48, parallel=True), "norm": NormConfig(placement="post")},
            "feed_forward.parallel is True; it must be False where norm.placement is post",
        ),
        (
            {
                **{"architecture": "encoder", "num_decoder_layers": 0, "positions": PositionsConfig()},
                **{"embeddings": EmbeddingsConfig(width=8), "head": HeadConfig("fill")},
            },
            "head.dense is False; it must be True where words have a width of their own",
        ),
        ({"embeddings": EmbeddingsConfig(width=8)}, "embeddings.width is 8; it must be left out but in architecture"),
        ({"vision": VisionConfig(8, 4)}, "it must be given in architecture vision, and only there"),
    ],
)
def test_groups_that_do_not_fit_one_another_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(BASE, **changes)

    assert words in str(error.value)


def test_an_encoder_has_no_decoder_layers() -> None:
    with pytest.raises(ConfigError, match="num_decoder_layers is 6; it must be 0 in architecture encoder"):
        replace(BASE, architecture="encoder")


def test_sinusoidal_positions_need_an_even_width() -> None:
    with pytest.raises(ConfigError, match="even"):
        replace(BASE, d_model=33, attention=AttentionConfig(3))


def test_a_table_of_sines_that_would_fill_the_memory_is_refused() -> None:
    most = 2**28 // BASE.d_model
    assert replace(BASE, max_positions=most).max_positions == most
    turning = replace(BASE, positions=PositionsConfig("rotary"))
    with pytest.raises(ConfigError, match=r"max_positions is 100000000; it must be at most .* for so wide"):
        replace(turning, max_positions=100_000_000)
    with pytest.raises(ConfigError, match=f"max_positions is {most + 1}; it must be at most {most}, for so wide"):
        replace(BASE, max_positions=most + 1)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("vocab_size", 10, "0, for images have no vocabulary"),
        ("max_positions", 196, "197: CLS and 196 patches"),
        ("d_model", 36 * 12 + 6, "a multiple of 4"),
    ],
)
def test_a_wrong_field_of_a_model_of_images_is_named(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(SIZES["vit-base"], attention=AttentionConfig(6), **{field: value})

    assert f"{field} is {value}" in str(error.value)
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"image_size": 225, "patch_size": 16}, "vision.image_size is 225; it must be a multiple of patch_size (16)"),
        (
            {"image_size": 224, "patch_size": 16, "patch_overlap": -1},
            "vision.patch_overlap is -1; it must be at least 0",
        ),
    ],
)
def test_images_are_cut_into_whole_patches(sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        VisionConfig(**sizes)

    assert words in str(error.value)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        BASE.d_model = 3  # type: ignore[misc]  # that is the point


def test_a_config_survives_being_written_and_read() -> None:
    attention = AttentionConfig(8, window=4, local_layers=(0, 2), relative=RelativeConfig("bucketed"))
    rotary = PositionsConfig("rotary", local_base=5e5, scaling=RotaryScaling(8.0, 1.0, 4.0, 8192))
    config = replace(BASE, attention=attention, positions=rotary)

    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"d_ff": 3}, "d_ff is no field; one of architecture, vocab_size"),
        ({"attention": {"heads": 3}}, "attention.heads is no field; one of num_heads"),
        ({"attention": {}}, r"attention\.num_heads is missing"),
        ({"attention": 3}, "attention is 3; it must be a group of fields"),
        ({"attention": {"num_heads": 8, "qkv_bias": "no"}}, r"attention\.qkv_bias is 'no'; it must be true or false"),
        ({"attention": {"num_heads": 8, "local_layers": [0.5]}}, "must be a list of whole numbers"),
        ({"d_model": True}, "d_model is True; it must be a whole number"),
        ({"dropout": "0.1"}, "dropout is '0.1'; it must be a number"),
        ({"vision": 3}, "vision is 3; it must be a group of fields or left out"),
        ({"norm": {"kind": 3}}, r"norm\.kind is 3; it must be a name"),
    ],
)
def test_reading_names_what_is_unknown_missing_or_of_another_kind(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TransformerConfig.from_dict({**BASE.to_dict(), **values})


def test_two_configurations_differ_in_named_fields() -> None:
    other = replace(BASE, d_model=256, norm=NormConfig(placement="pre"))

    assert BASE.differences(other) == {"d_model": (512, 256), "norm.placement": ("post", "pre")}


@pytest.mark.parametrize("package", sorted(PACKAGES.iterdir()), ids=lambda path: path.name)
def test_the_manifest_of_every_bundled_package_holds_a_configuration(package: Path) -> None:
    config = TransformerConfig.from_dict(Manifest.load(package).config)

    assert build(config).config == config


def test_the_original_transformer_has_eight_heads_of_64() -> None:
    assert (BASE.attention.num_heads, BASE.head_dim, BASE.kv_heads) == (8, 64, 8)
