"""ViT and DeiT, and the pictures they take."""

from __future__ import annotations

import base64
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from model.architectures import VisionTransformer
from model.checkpoints.errors import CheckpointError
from model.checkpoints.images import PREPROCESSOR_FILE, read_image_format
from model.checkpoints.read import FAMILIES, read_checkpoint, stated_config
from model.config import VisionConfig
from model.export.export import export_package
from model.package.images import decode_image
from model.sizes import SIZES
from service.models_file import ModelSettings
from service.schemas import ClassifyRequest, ClassifyResponse
from service.settings import Limits
from service.tasks.loading import load_task
from tests.model.checkpoints.parity import SEEDS, assert_equal, imported, loud_weights

CLASSES = {
    "vit": (transformers.ViTConfig, transformers.ViTForImageClassification),
    "deit": (transformers.DeiTConfig, transformers.DeiTForImageClassification),
    "deit, taught": (transformers.DeiTConfig, transformers.DeiTForImageClassificationWithTeacher),
}


def random_model(family: str, seed: int) -> Any:
    draw = random.Random(f"{family} {seed}")
    heads, patch = draw.choice([1, 2, 3]), draw.choice([2, 3, 5])
    config = CLASSES[family][0](
        hidden_size=heads * draw.choice([4, 8, 20]),
        num_attention_heads=heads,
        num_hidden_layers=draw.choice([1, 2, 3]),
        intermediate_size=draw.choice([22, 37, 48]),
        hidden_act=draw.choice(["gelu", "gelu_new", "relu", "silu", "quick_gelu"]),
        layer_norm_eps=draw.choice([1e-12, 1e-6, 1e-2]),
        image_size=patch * draw.choice([1, 3, 4]),
        patch_size=patch,
        num_channels=draw.choice([1, 3]),
        qkv_bias=draw.choice([True, False]),
        num_labels=draw.choice([2, 3, 7]),
    )
    return loud_weights(CLASSES[family][1](config), seed)


@torch.no_grad()
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", CLASSES)
def test_logits_and_hidden_states_are_those_of_transformers(family: str, seed: int, tmp_path: Path) -> None:
    theirs = random_model(family, seed)
    ours = imported(theirs, tmp_path)
    assert isinstance(ours, VisionTransformer)
    side, channels = theirs.config.image_size, theirs.config.num_channels
    pixels = torch.randn(3, channels, side, side, generator=torch.Generator().manual_seed(seed))

    assert_equal(ours(pixels), theirs(pixel_values=pixels).logits)
    body = theirs.base_model(pixel_values=pixels)
    assert_equal(ours.hidden_states(pixels), body.last_hidden_state)


PUBLISHED: dict[str, Any] = {  # of google/vit-base-patch16-224, but for its thousand labels
    **{"architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu"},
    **{"hidden_dropout_prob": 0.0, "hidden_size": 768, "id2label": {str(label): f"{label}" for label in range(1000)}},
    **{"image_size": 224, "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12},
    **{"model_type": "vit", "num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12, "patch_size": 16},
    **{"qkv_bias": True, "transformers_version": "4.13.0.dev0"},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["ViTModel"]}, "architectures is ['ViTModel']; only names that end in"),
        ({"architectures": ["ViTForMaskedImageModeling"]}, "architectures is ['ViTForMaskedImageModeling']; only"),
        ({"image_size": [224, 256]}, "image_size is [224, 256]; only squares are supported"),
        ({"use_mask_token": True}, "use_mask_token is True; this field is not known"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(changes: dict[str, Any], words: str) -> None:
    assert FAMILIES["vit"].to_config(PUBLISHED) == SIZES["vit-base"]
    with pytest.raises(CheckpointError) as error:
        FAMILIES["vit"].to_config({**PUBLISHED, **changes})
    assert words in str(error.value)


def picture(width: int, height: int) -> Image.Image:
    shades = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(shades).resize((2 * width, 2 * height), Image.Resampling.BICUBIC)


def png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ViT", {"size": {"height": 24, "width": 24}}),
        ("ViT", {"size": {"height": 24, "width": 24}, "resample": 3, "image_mean": [0.4, 0.5, 0.6]}),
        ("DeiT", {"size": {"height": 28, "width": 28}, "crop_size": {"height": 24, "width": 24}}),
        ("Bit", {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}}),
        ("Bit", {"size": {"shortest_edge": 31}, "crop_size": {"height": 24, "width": 24}, "resample": 2}),
    ],
)
def test_pictures_become_the_pixels_that_transformers_makes(kind: str, settings: Any, tmp_path: Path) -> None:
    theirs = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
    theirs.save_pretrained(tmp_path)
    image = read_image_format(tmp_path, VisionConfig(24, 8))

    for shape in ((24, 24), (50, 31), (17, 60), (40, 41)):
        given = picture(*shape)
        expected = theirs(given, return_tensors="np")["pixel_values"][0]
        np.testing.assert_allclose(decode_image(png(given), image), expected, atol=1e-5)


def test_what_some_versions_write_beside_it_changes_no_picture(tmp_path: Path) -> None:
    beside = {"_valid_processor_keys": ["images"], "default_to_square": True, "device": None, "return_tensors": "pt"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 24, **beside}))

    assert read_image_format(tmp_path, VisionConfig(24, 8)).size == 24


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"feature_extractor_type": "CLIPFeatureExtractor"}, "image_processor_type is 'CLIPFeatureExtractor'; only"),
        ({"size": 32}, "size is 32; the model takes 24 × 24 pixels"),
        ({"size": {"height": 24, "width": 20}}, "only a square and a shortest_edge are supported"),
        ({"size": {"shortest_edge": 24}}, "do_center_crop is False; the model takes 24 × 24 pixels, so where ratios"),
        ({"size": 24, "default_to_square": False}, "default_to_square is False; only True is supported"),
        ({"size": 16, "do_center_crop": True, "crop_size": 24}, "crop_size is 24; the model takes 24 × 24 pixels"),
        ({"size": 24, "rescale_factor": 1 / 256}, "it must be 1/255"),
        ({"size": 24, "do_normalize": False}, "do_normalize is False; only true is supported"),
        ({"size": 24, "rescale_factor": 1 / 127.5}, "it must be 1/255"),
        ({"size": 24, "resample": 0}, "resample is 0; only {1: 'lanczos'"),
        ({"size": 24, "crop_pct": 0.9}, "preprocessor_config.json: crop_pct is 0.9; this field is not known"),
        ({"size": 24, "image_mean": [0.5]}, "mean has 1 values; it must have one for each of 3 channels"),
        ({"size": 24, "image_std": [0.5, 0, 0.5]}, "preprocessor_config.json: deviation.1: Input should be greater"),
    ],
)
def test_pictures_that_are_made_otherwise_are_refused(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / PREPROCESSOR_FILE).write_text(json.dumps(settings))
    with pytest.raises(CheckpointError) as error:
        read_image_format(tmp_path, VisionConfig(24, 8))
    assert words in str(error.value)


def test_what_does_not_say_how_pictures_are_made_is_refused_before_weights_are_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))

    with pytest.raises(CheckpointError, match=r"there is no preprocessor_config\.json"):
        stated_config(tmp_path)


async def test_the_service_labels_pictures_as_transformers_does(tmp_path: Path) -> None:
    config = transformers.DeiTConfig(
        **{"hidden_size": 20, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 30},
        **{"image_size": 24, "patch_size": 8, "id2label": {0: "cat", 1: "dog", 2: "owl"}},
    )
    theirs = loud_weights(transformers.DeiTForImageClassificationWithTeacher(config))
    processor = transformers.DeiTImageProcessorPil(
        size={"height": 28, "width": 28}, crop_size={"height": 24, "width": 24}
    )
    for part in (theirs, processor):
        part.save_pretrained(tmp_path / "checkpoint")
    model, tokens, card, _ = read_checkpoint(tmp_path / "checkpoint", "tiny", "MIT", scratch=tmp_path)
    export_package(model, tokens, card, tmp_path / "tiny", precision="float32")
    task = load_task(ModelSettings(package=tmp_path / "tiny", threads=1), Limits())
    given = picture(50, 31)
    answer = await task.predict(ClassifyRequest(input=base64.b64encode(png(given)).decode()))
    await task.close()

    with torch.no_grad():
        logits = theirs(**processor(given, return_tensors="pt")).logits
    expected = dict(zip(("cat", "dog", "owl"), logits.softmax(-1)[0].tolist(), strict=True))
    assert isinstance(answer, ClassifyResponse)
    assert {label.label: label.score for label in answer.results[0].labels} == pytest.approx(expected, rel=1e-4)
