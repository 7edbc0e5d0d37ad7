"""Runs of every recipe over a few rows, with the smallest models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.config import TransformerConfig
from model.training.loop import Training, train
from model.training.objectives.answer import Question
from model.training.objectives.pair import Pair
from model.training.recipe import Recipe
from model.training.recipes import RECIPES
from tests.conftest import TEXTS, TINY

IMAGES = [np.eye(28, k=shift, dtype=np.uint8) * 255 for shift in (-8, 0, 8)]
INFERENCES = [(("good", "good film"), 0), (("good", "a dog"), 1), (("good", "bad film"), 2)] * 4
SCORED = [Pair("good", "great", 1.0), Pair("good", "dog", 0.2), Pair("ice", "a red ball", 0.5)] * 4
PAIRS = [("sv", "Dan loves ice cream.", "Dan älskar glass."), ("de", "a dog", "ein Hund")] * 4

# Rows to learn by heart, by the beginning of a recipe's name.
ROWS: dict[str, list[Any]] = {
    "pretrain-encoder": [[*TEXTS, *TEXTS[::-1]]] * 6,
    **dict.fromkeys(("finetune-classify-entail", "finetune-classify-hypotheses"), INFERENCES),
    "finetune-classify": [("good film", 1), ("bad film", 0)] * 6,
    "finetune-tag": [(["Dan", "loves", "the", "dog"], ["B-PER", "O", "O", "O"])] * 6,
    "finetune-answer": [Question("Who loves?", "Dan loves ice cream.", [("Dan", 0)])] * 6,
    **dict.fromkeys(("finetune-score-pairs", "contrastive-embed"), SCORED),
    "pretrain-decoder": TEXTS * 4,
    "sft-decoder": [("Write a story.\n", TEXTS[0])] * 6,
    "translate": PAIRS,
    "classify-image": [(image, label) for label, image in enumerate(IMAGES)] * 6,
}
SIZES = {"mini-encoder": "sentiment", "mini-vision": "fashion", "stories": "stories", "translate": "translate"}


def rows_of(name: str) -> list[Any]:
    return next(rows for beginning, rows in ROWS.items() if name.startswith(beginning))


def tiny_recipe(name: str, **changes: Any) -> Recipe:
    small = {"epochs": 6, "batch_tokens": 256, "warmup_steps": 3, "learning_rate": 1e-2}
    return replace(RECIPES[name], **{"read": lambda _data, _split: rows_of(name), **small, **changes})


def tiny_size(name: str) -> TransformerConfig:
    return TINY[SIZES[RECIPES[name].size]]


def training_of(name: str, folder: Path, start_from: Path | None = None, **changes: Any) -> Training:
    recipe = tiny_recipe(name, **changes)
    return Training(recipe, Path(), folder, start_from=start_from, size=tiny_size(name), compile_model=False)


def run(name: str, folder: Path, start_from: Path | None = None, **changes: Any) -> dict[str, torch.Tensor]:
    recipe = tiny_recipe(name, **changes)
    size = tiny_size(name)
    return train(recipe, Path(), folder, start_from=start_from, size=size, compile_model=False).state_dict()


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
