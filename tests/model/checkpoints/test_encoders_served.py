"""Encoders from the files that transformers saves, through a package, to what the service's engine answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import check_description, read_checkpoint
from model.checkpoints.tokenizer import read_tokenizer
from model.export.export import export_package
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import train_wordpiece
from service.engine.inputs import TextInput
from tests.conftest import TEXTS, TinyPackage
from tests.model.checkpoints.conftest import change
from tests.model.checkpoints.parity import TOLERANCE, error_of, loud_weights
from tests.service.engine.test_batcher import run, running

SIZES: dict[str, Any] = {"vocab_size": 131, "pad_token_id": 1, "max_position_embeddings": 64}
BERT: dict[str, Any] = {**SIZES, "hidden_size": 36, "num_attention_heads": 6, "num_hidden_layers": 2}
BERT["intermediate_size"] = 44
LENGTHS = (48, 3, 20, 47)

# A head of each kind, and all that an encoder's graph can have: odd head widths, windows, two bases, gates, distances.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "BertForSequenceClassification": ("classify", {**BERT, "num_labels": 3}),
    "RobertaForSequenceClassification": ("rerank", {**BERT, "num_labels": 1, "type_vocab_size": 1}),
    "XLMRobertaForTokenClassification": ("tag", {**BERT, "num_labels": 5, "type_vocab_size": 1}),
    "DistilBertForQuestionAnswering": ("answer", {**SIZES, "dim": 36, "n_heads": 2, "n_layers": 2, "hidden_dim": 44}),
    "ModernBertForMaskedLM": (
        "fill",
        {**BERT, "num_hidden_layers": 4, "local_attention": 10, "global_rope_theta": 300.0, "local_rope_theta": 50.0},
    ),
    "ModernBertForSequenceClassification": ("classify", {**BERT, "classifier_pooling": "mean", "norm_bias": True}),
    "MPNetForSequenceClassification": ("classify", {**BERT, "num_labels": 4}),
    "ElectraForQuestionAnswering": ("answer", {**BERT, "embedding_size": 20, "type_vocab_size": 2}),
    "ElectraForMaskedLM": ("fill", {**BERT, "embedding_size": 20, "type_vocab_size": 2}),
    "AlbertForMaskedLM": ("fill", {**BERT, "num_hidden_layers": 3, "embedding_size": 20, "type_vocab_size": 2}),
    "EuroBertForSequenceClassification": ("classify", {**BERT, "num_labels": 3, "num_key_value_heads": 2}),
    "EuroBertForMaskedLM": ("fill", {**BERT, "mlp_bias": True}),
    "GteForSequenceClassification": (
        "classify",
        {
            **{**BERT, "num_labels": 3, "type_vocab_size": 1},
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0},
        },
    ),
    "NomicBertForTokenClassification": ("tag", {**BERT, "num_labels": 5, "type_vocab_size": 2}),
    "DebertaV2ForTokenClassification": (
        "tag",
        {
            **{**BERT, "relative_attention": True, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
            **{"position_buckets": 8, "max_relative_positions": 30, "pos_att_type": "p2c|c2p", "type_vocab_size": 2},
        },
    ),
}


def exported(theirs: Any, folder: Path) -> TinyPackage:
    """Return the float32 package of a checkpoint."""
    source = folder / "checkpoint"
    theirs.save_pretrained(source)
    train_wordpiece(TEXTS, 120).save(str(source / TOKENIZER_FILE))
    model, tokens, card, family = read_checkpoint(source, "tiny", "MIT", scratch=folder)
    package = folder / "tiny"
    return TinyPackage(package, export_package(model, tokens, card, package, precision="float32", family=family), model)


def inputs(segments: int, vocab_size: int) -> list[TextInput]:
    """Return random texts; the second half of each belongs to a second text, where a model tells them apart."""
    generator = torch.Generator().manual_seed(0)
    texts = []
    for length in LENGTHS:
        ids = torch.randint(2, vocab_size, (length,), generator=generator).tolist()
        kinds = [int(segments > 1 and place >= length // 2) for place in range(length)]
        texts.append(TextInput(ids, kinds, places=(0, length - 1)))
    return texts


@torch.no_grad()
def expected(theirs: Any, text: TextInput, segments: int) -> Tensor:
    """Return what transformers answers to one text alone."""
    kinds = {"token_type_ids": torch.tensor([text.segment_ids])} if segments else {}
    found = theirs(input_ids=torch.tensor([text.ids]), **kinds)
    if "start_logits" in found:
        return torch.stack((found.start_logits[0], found.end_logits[0]), dim=-1)
    logits: Tensor = found.logits[0]
    return logits[list(text.places)] if type(theirs).__name__.endswith("MaskedLM") else logits


def assert_answers(answers: Sequence[Any], truths: Sequence[Tensor]) -> None:
    for answer, truth in zip(answers, truths, strict=True):
        real = np.asarray(answer)[: len(truth)]  # behind them is padding
        assert error_of(torch.from_numpy(real), truth) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
async def test_the_engine_answers_texts_together_as_transformers_does_each_alone(name: str, tmp_path: Path) -> None:
    task, changes = CASES[name]
    kind = getattr(transformers, name)
    theirs = loud_weights(kind(kind.config_class(**changes)))
    segments = getattr(theirs.config, "type_vocab_size", 0)
    package = exported(theirs, tmp_path)
    texts = inputs(segments, SIZES["vocab_size"])
    async with running(package) as batcher:
        answers = await run(batcher, *texts)

    assert package.manifest.task == task
    assert_answers(answers, [expected(theirs, text, segments) for text in texts])


def test_a_roberta_whose_texts_have_its_padding_around_them_is_refused(bert: Path) -> None:
    names = {"model_type": "roberta", "architectures": ["RobertaForSequenceClassification"]}
    tokenizer = read_tokenizer(bert / TOKENIZER_FILE)
    change(bert / "config.json", **names, pad_token_id=tokenizer.token_to_id("[PAD]"))
    check_description(bert)

    change(bert / "config.json", pad_token_id=tokenizer.token_to_id("[CLS]"))
    with pytest.raises(CheckpointError, match=r"pad_token_id is \d; the tokenizer puts this token around texts"):
        check_description(bert)
