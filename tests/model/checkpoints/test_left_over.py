"""Tensors of another head that were left in a file, as by fine-tuning: they change nothing, as in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from model.checkpoints.files import read_config
from model.checkpoints.read import FAMILIES
from model.checkpoints.weights import open_weights
from tests.checkpoints import convert
from tests.model.checkpoints import test_decoder_heads, test_seq2seq, test_vit


def bart() -> Any:
    config = test_seq2seq.random_config("bart", 0)
    return transformers.BartForSequenceClassification(config)


def qwen3() -> Any:
    return transformers.Qwen3ForSequenceClassification(test_decoder_heads.random_config("qwen3", 0, labels=2))


@pytest.mark.parametrize(
    ("theirs", "left"),
    [
        (bart, {"final_logits_bias": (1, 60)}),
        (qwen3, {"lm_head.weight": (60, 8)}),
        (lambda: test_vit.random_model("vit", 0), {"vit.pooler.dense.weight": (8, 8), "vit.pooler.dense.bias": (8,)}),
    ],
)
def test_what_another_head_left_in_a_file_changes_nothing(
    theirs: Any, left: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    theirs().save_pretrained(tmp_path)
    config = read_config(tmp_path)
    family, beside = FAMILIES[config["model_type"]], {name: torch.ones(shape) for name, shape in left.items()}
    with open_weights(tmp_path) as tensors:
        ours, again = (convert(family, config, {**dict(tensors), **more}).state_dict() for more in ({}, beside))

    assert again.keys() == ours.keys()
    assert all(torch.equal(value, ours[name]) for name, value in again.items())
