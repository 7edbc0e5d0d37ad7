"""What the library's files say of a cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.errors import CheckpointError
from model.checkpoints.sentence import of_cross_encoder, read_layout
from tests.model.checkpoints.test_sentence import write


def test_of_a_folder_without_these_files_nothing_is_said(tmp_path: Path) -> None:
    assert of_cross_encoder(tmp_path) == {}


def test_a_cross_encoder_names_what_makes_scores(tmp_path: Path) -> None:
    named = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity", "prompts": {}}
    folder = write(tmp_path, ["Transformer"], config_sentence_transformers=named)

    assert read_layout(folder) is None
    assert of_cross_encoder(folder) == {"activation_fn": "torch.nn.modules.linear.Identity"}


AS_SAVED = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}


def test_a_cross_encoders_longest_pair_is_read(tmp_path: Path) -> None:
    named = {"model_type": "CrossEncoder"}
    saved = {**AS_SAVED, "max_seq_length": 8}
    folder = write(tmp_path, ["Transformer"], config_sentence_transformers=named, sentence_bert_config=saved)

    assert of_cross_encoder(folder) == {"max_seq_length": 8}


@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": True},
        {"processing_kwargs": {"text": {"add_special_tokens": False}}},
        {"transformer_task": "feature-extraction"},
        {"max_seq_length": 0},
    ],
    ids=str,
)
def test_what_else_would_change_a_cross_encoders_answers_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    named = {"model_type": "CrossEncoder"}
    saved = {**AS_SAVED, **settings}
    folder = write(tmp_path, ["Transformer"], config_sentence_transformers=named, sentence_bert_config=saved)

    with pytest.raises(CheckpointError, match=next(iter(settings))):
        of_cross_encoder(folder)
