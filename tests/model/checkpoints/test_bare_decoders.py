"""Decoders whose config.json names the class of a model without a head, as some files of models that write do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from model.architectures import DecoderLM
from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import check_description, read_checkpoint, stated_config
from tests.model.checkpoints.conftest import change
from tests.model.checkpoints.parity import assert_equal

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
IDS = torch.arange(3, 30)[None]


@torch.no_grad()
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_bare_decoder_with_the_weights_of_one_that_writes_writes(is_tied: bool, folder: Path, tmp_path: Path) -> None:
    change(folder / "config.json", architectures=["GPT2Model"], tie_word_embeddings=is_tied)
    if not is_tied:
        tensors = load_file(folder / WEIGHTS)
        output = torch.randn(tensors["transformer.wte.weight"].shape) * 0.3
        save_file({**tensors, "lm_head.weight": output}, folder / WEIGHTS, {"format": "pt"})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    check_description(folder)
    ours, _, card, _ = read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path)

    assert isinstance(ours, DecoderLM) and card.task == "generate"
    assert_equal(ours(IDS), theirs(IDS).logits)


@torch.no_grad()
def test_a_bare_decoder_makes_vectors_where_it_is_asked_to(folder: Path, tmp_path: Path) -> None:
    change(folder / "config.json", architectures=["GPT2Model"])
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    ours, _, card, _ = read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path, pooling="lasttoken")

    assert card.task == "embed"
    assert_equal(ours(IDS, torch.ones_like(IDS)), theirs(IDS).last_hidden_state[:, -1])


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_bare_decoder_that_may_be_for_vectors_alone_is_refused_with_both_ways_out(
    is_tied: bool, folder: Path, tmp_path: Path
) -> None:
    transformers.AutoModel.from_pretrained(folder).save_pretrained(folder)  # names have no prefix there
    change(folder / "config.json", tie_word_embeddings=is_tied)
    assert stated_config(folder).head.kind == "embed"

    with pytest.raises(
        CheckpointError,
        match=r"\['GPT2Model'\]; a model without a head needs modules.json, or --pooling, .*; if it writes texts, name",
    ):
        read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path)
    change(folder / "config.json", architectures=["GPT2LMHeadModel"], tie_word_embeddings=True)
    read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path)
    change(folder / "config.json", architectures=["GPT2Model"])
    read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path, pooling="mean")


def test_a_bare_decoder_is_refused_before_its_weights_come_where_their_names_are_here(
    folder: Path, tmp_path: Path
) -> None:
    change(folder / "config.json", architectures=["GPT2Model"])
    check_description(folder)

    transformers.AutoModel.from_pretrained(folder).save_pretrained(folder)
    refused = rf"^{folder}: config\.json: architectures is \['GPT2Model'\]; .* a class that ends in ForCausalLM"
    with pytest.raises(CheckpointError, match=refused):
        check_description(folder)
    with pytest.raises(CheckpointError, match=refused):
        read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path)

    names = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    check_description(folder)  # of which nothing is known yet
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}))
    with pytest.raises(CheckpointError, match=refused):
        check_description(folder)
    check_description(folder, pooling="mean")
