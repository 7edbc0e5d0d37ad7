"""Encoders from the files that transformers saves, through a package, to what the service's engine answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from torch import Tensor

from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import check_description, read_checkpoint
from model.checkpoints.tokenizer import read_tokenizer
from model.export.export import export_package
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import train_bpe, train_wordpiece
from service.engine.inputs import TextInput
from tests.conftest import TEXTS, TinyPackage
from tests.model.checkpoints.conftest import with_padding_second
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
    with_padding_second(train_wordpiece(TEXTS, 120)).save(str(source / TOKENIZER_FILE))
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


def as_family(name: str, folder: Path, **fields: Any) -> None:
    """Make a BERT's files say that they are those of another family."""
    config = json.loads((folder / "config.json").read_text())
    del config["pad_token_id"]
    named = {"model_type": name.lower(), "architectures": [f"{name}ForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps({**config, **named, **fields}))


def with_ids(folder: Path, *first: str) -> None:
    """Write a tokenizer whose vocabulary begins with some tokens, and knows no other word."""
    content = json.loads(read_tokenizer(folder / TOKENIZER_FILE).to_str())
    content["model"]["vocab"] = ids = {token: number for number, token in enumerate(first)}
    for token in content["added_tokens"]:
        token["id"] = ids[token["content"]]
    for token in content["post_processor"]["special_tokens"].values():
        token["ids"] = [ids[token["id"]]]
    (folder / TOKENIZER_FILE).write_text(json.dumps(content))


AROUND = "but the tokenizer puts it around texts"
UNKNOWN = "but the tokenizer puts it where it does not know a word"
CLS_FIRST = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
UNK_FIRST = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.mark.parametrize(
    ("family", "pad", "first", "words"),
    [
        ("Roberta", {"pad_token_id": 2}, CLS_FIRST, f"pad_token_id is 2; token 2 is its padding, .*, {AROUND}"),
        ("Roberta", {"pad_token_id": 3}, CLS_FIRST, f"pad_token_id is 3; token 3 is its padding, .*, {UNKNOWN}"),
        ("Roberta", {}, CLS_FIRST, f"pad_token_id is 1; token 1 is its padding, .*, {AROUND}"),
        ("Roberta", {}, UNK_FIRST, f"pad_token_id is 1; token 1 is its padding, .*, {UNKNOWN}"),
        ("MPNet", {"pad_token_id": 0}, CLS_FIRST, f"model_type is 'mpnet'; token 1 is its padding, .*, {AROUND}"),
        ("MPNet", {"pad_token_id": 0}, UNK_FIRST, f"model_type is 'mpnet'; token 1 is its padding, .*, {UNKNOWN}"),
    ],
)
def test_a_model_whose_texts_would_have_positions_of_padding_is_refused(
    family: str, pad: dict[str, int], first: Sequence[str], words: str, bert: Path
) -> None:
    as_family(family, bert, **pad)
    with_ids(bert, *first)

    with pytest.raises(CheckpointError, match=rf"^{bert}: config\.json: {words}$"):
        check_description(bert)


@pytest.mark.parametrize(
    ("family", "pad", "first"),
    [
        ("Roberta", {"pad_token_id": 0}, CLS_FIRST),
        ("Roberta", {"pad_token_id": 0}, UNK_FIRST),
        ("Roberta", {}, ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]")),
        ("MPNet", {"pad_token_id": 0}, ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")),
    ],
)
def test_a_model_whose_texts_have_no_padding_is_taken(
    family: str, pad: dict[str, int], first: Sequence[str], bert: Path
) -> None:
    as_family(family, bert, **pad)
    with_ids(bert, *first)

    check_description(bert)


def test_padding_may_be_the_unknown_token_of_a_tokenizer_that_knows_all(bert: Path) -> None:
    as_family("Roberta", bert, pad_token_id=0, vocab_size=400)
    content = json.loads(train_bpe(TEXTS, 400, ["<unk>"]).to_str())
    content["model"]["unk_token"] = "<unk>"
    Tokenizer.from_str(json.dumps(content)).save(str(bert / TOKENIZER_FILE))

    check_description(bert)


@pytest.mark.parametrize(
    "model",
    [
        models.Unigram([("<s>", 0.0), ("<pad>", 0.0), ("a", -1.0)], unk_id=None),
        models.WordLevel({"<s>": 0, "<pad>": 1, "a": 2}, unk_token="<unk>"),
    ],
)
def test_a_tokenizer_without_a_token_for_unknown_words_puts_no_padding_there(model: models.Model, bert: Path) -> None:
    as_family("Roberta", bert)
    Tokenizer(model).save(str(bert / TOKENIZER_FILE))

    check_description(bert)
