"""Marian as it is published: weights, source.spm, target.spm, vocab.json, and no tokenizer.json."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from model.architectures import EncoderDecoder
from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import read_checkpoint
from model.decoding import beam_search, next_logits
from model.package import Languages, PackageTokenizer
from tests.model.checkpoints.conftest import PAGE


@pytest.fixture
def published(marian: Path) -> tuple[Path, Any, Any]:
    """A folder with random weights, and the model and the tokenizer that transformers makes of it."""
    with pytest.warns(UserWarning, match="sacremoses"):
        tokenizer = transformers.MarianTokenizer.from_pretrained(marian)
    config = transformers.MarianConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        max_position_embeddings=200,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None,
        init_std=0.5,
    )
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config).eval()
    model.save_pretrained(marian)
    return marian, model, tokenizer


def test_stored_positions_must_be_those_that_are_computed(published: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, theirs, _ = published
    weights = {name: values.clone() for name, values in theirs.state_dict().items() if "shared" not in name}
    name = "model.encoder.embed_positions.weight"
    for kind, words in ((torch.float16, None), (torch.bfloat16, None), (torch.float32, "other numbers than the sines")):
        stored = (weights[name] + (words is not None)).to(kind)
        save_file({**weights, name: stored}, folder / "model.safetensors")
        with nullcontext() if words is None else pytest.raises(CheckpointError, match=words):
            read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path)


@torch.no_grad()
def test_text_in_and_text_out_are_those_of_transformers(published: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, theirs, their_tokenizer = published
    (tmp_path / "made").mkdir()
    ours, tokens, _, _ = read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path / "made")
    assert tokens is not None
    tokenizer, special = PackageTokenizer.load(tokens.file), tokens.special_ids

    assert tokens.languages == Languages(
        directions=[("en", "deu"), ("en", "fra")],
        ids={language: tokenizer.id_of(f">>{language}<<") for language in ("deu", "fra")},
        source_begins_with="target",
    )
    assert isinstance(ours, EncoderDecoder) and special.start is not None and special.end is not None
    translations = set()
    for line in PAGE[::5]:
        source = [*tokens.languages.first_of_source("en", "deu"), *tokenizer.encode(line).ids]
        best = beam_search(next_logits(ours, source), [special.start], special.end, 12, 1)[0]
        given = their_tokenizer(f">>deu<< {line}", return_tensors="pt")
        expected = theirs.generate(**given, max_new_tokens=12, num_beams=1, do_sample=False)[0]
        translations.add(tokenizer.decode(best.ids))
        assert tokenizer.decode(best.ids) == their_tokenizer.decode(expected, skip_special_tokens=True)
    assert len(translations) > 1
