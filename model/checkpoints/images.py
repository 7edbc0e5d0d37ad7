"""What images a checkpoint takes: `preprocessor_config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from model.checkpoints.errors import CheckpointError
from model.checkpoints.fields import Fields, field_names, unsupported
from model.checkpoints.files import read_json
from model.config import VisionConfig
from model.package import ImageFormat
from model.package.manifest import Resampling, in_words

PREPROCESSOR_FILE = "preprocessor_config.json"

STANDARD = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
PLAIN = {
    "default_to_square": True,
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "do_center_crop": False,
    "crop_size": 224,
} | {
    "rescale_factor": 1 / 255,
    "resample": 2,
    "size": 224,
}
# What each class takes for granted; the first is that of files that name none.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ViT": {**PLAIN, **STANDARD},
    "DeiT": {**PLAIN, **STANDARD, "do_center_crop": True, "resample": 3, "size": 256},
    "Bit": {
        **PLAIN,
        **CLIP,
        "default_to_square": False,
        "do_center_crop": True,
        "resample": 3,
        "size": {"shortest_edge": 224},
    },
}
CLASS_ENDS = ("ImageProcessor", "FeatureExtractor", "ImageProcessorFast", "ImageProcessorPil")
HARMLESS = (
    field_names("image_processor_type feature_extractor_type processor_class do_convert_rgb data_format")
    | field_names("_valid_processor_keys device disable_grouping input_data_format return_tensors")
    | {"crop_size"}  # where nothing is cut
)
RESAMPLING: Mapping[int, Resampling] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


def read_image_format(folder: Path, vision: VisionConfig) -> ImageFormat:
    """Return how pictures become what the model takes; raises `CheckpointError`, by a field's name and value."""
    try:
        return _image_format(read_json(folder / PREPROCESSOR_FILE), vision)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: {PREPROCESSOR_FILE}: a field has a value that it cannot have: {error}"
        ) from None


def _image_format(values: Mapping[str, Any], vision: VisionConfig) -> ImageFormat:
    kind = _kind(values)
    fields = Fields(values, DEFAULTS[kind], PREPROCESSOR_FILE)
    for name in ("do_resize", "do_rescale", "do_normalize"):
        _check(name, fields[name], fields[name] is True, "only true is supported")
    factor, resample, crops = fields["rescale_factor"], fields["resample"], fields["do_center_crop"]
    _check("rescale_factor", factor, abs(factor * 255 - 1) < 1e-6, "it must be 1/255")
    _check("resample", resample, resample in RESAMPLING, f"only {RESAMPLING} are supported")
    resize, keeps_ratio = _side(fields["size"], is_square=kind != "Bit")
    size = _side(fields["crop_size"])[0] if crops else resize
    takes = f"the model takes {vision.image_size} × {vision.image_size} pixels"
    _check("crop_size" if crops else "size", size, size == vision.image_size <= resize, takes)
    _check("do_center_crop", crops, crops or not keeps_ratio, f"{takes}, so where ratios are kept it must be true")
    try:
        image = ImageFormat(
            size=size,
            channels=vision.num_channels,
            mean=fields["image_mean"],
            deviation=fields["image_std"],
            resize=resize if resize > size or keeps_ratio else None,
            keeps_ratio=keeps_ratio,
            resampling=RESAMPLING[resample],
        )
    except ValidationError as error:
        raise CheckpointError(f"{PREPROCESSOR_FILE}: {in_words(error, 'pictures')}") from None
    fields.refuse_the_rest(HARMLESS)
    return image


def _kind(values: Mapping[str, Any]) -> str:
    named = values.get("image_processor_type") or values.get("feature_extractor_type") or f"ViT{CLASS_ENDS[0]}"
    kind = next((kind for kind in DEFAULTS for end in CLASS_ENDS if named == f"{kind}{end}"), "")
    known = ", ".join(f"{kind}{CLASS_ENDS[0]}" for kind in DEFAULTS)
    _check("image_processor_type", named, bool(kind), f"only {known} are supported")
    return kind


def _side(size: Any, *, is_square: bool = True) -> tuple[int, bool]:
    """Return how long a square's sides are, or the shorter of two whose ratio is kept, and whether it is."""
    if isinstance(size, int):
        return size, not is_square
    if set(size) == {"shortest_edge"}:
        return size["shortest_edge"], True
    fits = set(size) == {"height", "width"} and size["height"] == size["width"]
    _check("size", size, fits, "only a square and a shortest_edge are supported")
    return size["height"], False


def _check(name: str, value: object, allowed: bool, why: str) -> None:
    if not allowed:
        raise CheckpointError(unsupported(name, value, why, PREPROCESSOR_FILE))
