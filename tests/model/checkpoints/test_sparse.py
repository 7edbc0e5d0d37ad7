"""Sparse vectors, beside sentence-transformers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling

from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import check_description, read_checkpoint, stated_config
from model.export.export import export_package
from model.package import Embedding, PackageTokenizer
from model.package.inputs import pad_rows
from model.training.tokenizers import train_wordpiece
from tests.conftest import TEXTS
from tests.model.checkpoints.conftest import change, with_padding_second
from tests.model.checkpoints.parity import TOLERANCE, error_of, loud_weights

WIDTHS = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = {"intermediate_size": 48, "max_position_embeddings": 48}
CONFIGS: dict[str, Any] = {
    "bert": transformers.BertConfig(**WIDTHS, **WIDE),
    "distilbert": transformers.DistilBertConfig(
        vocab_size=120, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=48
    ),
    "roberta": transformers.RobertaConfig(**WIDTHS, **WIDE, pad_token_id=1, type_vocab_size=1),
    "mpnet": transformers.MPNetConfig(**WIDTHS, **WIDE, pad_token_id=1),
    "electra": transformers.ElectraConfig(**WIDTHS, **WIDE, embedding_size=24),
    "deberta-v2": transformers.DebertaV2Config(
        **WIDTHS,
        **WIDE,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=16,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        type_vocab_size=0,
    ),
    "modernbert": transformers.ModernBertConfig(
        **WIDTHS, **WIDE, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3
    ),
}


def saved(folder: Path, family: str = "bert", **library: Any) -> SparseEncoder:
    """Save a tiny random model as its library does."""
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    trained = train_wordpiece(TEXTS, 120)
    if CONFIGS[family].pad_token_id == 1:  # by which the family counts positions
        trained = with_padding_second(trained)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=trained, **special)
    model = transformers.AutoModelForMaskedLM.from_config(CONFIGS[family])
    loud_weights(model, 5).save_pretrained(folder / "body")
    tokenizer.save_pretrained(folder / "body")
    transformer = Transformer(str(folder / "body"), transformer_task="fill-mask")
    theirs: SparseEncoder = SparseEncoder(modules=[transformer, SpladePooling()], device="cpu", **library)
    theirs.save_pretrained(str(folder / "sparse"))
    return theirs


@torch.no_grad()
@pytest.mark.parametrize("family", CONFIGS)
def test_vectors_are_those_of_the_library(family: str, tmp_path: Path) -> None:
    theirs = saved(tmp_path, family, prompts={"query": "the dog: "})
    model, tokens, card, _ = read_checkpoint(tmp_path / "sparse", "tiny", "MIT", scratch=tmp_path)
    assert tokens is not None and card.task == "embed_sparse"
    assert card.embedding is not None and card.embedding.prompts["query"] == "the dog: "
    ids, lengths = pad_rows([PackageTokenizer.load(tokens.file).encode(text).ids for text in TEXTS], 0)
    ours = model(torch.from_numpy(ids), torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None])

    expected = torch.tensor(np.asarray(theirs.encode(TEXTS, convert_to_sparse_tensor=False)))
    assert error_of(ours.log1p(), expected) < TOLERANCE
    assert ours.shape == (len(TEXTS), 120) and (family != "bert" or (ours == 0).any())


def test_files_of_the_librarys_version_5_are_read(tmp_path: Path) -> None:
    saved(tmp_path)
    old = "sentence_transformers.sparse_encoder.models"
    listed = [
        {"idx": 0, "name": "0", "path": "", "type": f"{old}.MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": f"{old}.SpladePooling"},
    ]
    (tmp_path / "sparse" / "modules.json").write_text(json.dumps(listed))
    pooling = {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": None}
    (tmp_path / "sparse" / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))
    (tmp_path / "sparse" / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}')
    _, _, card, _ = read_checkpoint(tmp_path / "sparse", "tiny", "MIT", scratch=tmp_path)

    assert (card.task, card.max_input_tokens) == ("embed_sparse", 20)


@torch.no_grad()
def test_what_fills_in_words_makes_sparse_vectors_if_that_is_asked_for(tmp_path: Path) -> None:
    saved(tmp_path)
    layout, _, _, _ = read_checkpoint(tmp_path / "sparse", "tiny", "MIT", scratch=tmp_path)
    asked, tokens, card, family = read_checkpoint(tmp_path / "body", "tiny", "MIT", scratch=tmp_path, pooling="splade")
    ids = torch.tensor([[2, 9, 11, 3]])
    assert asked(ids, torch.ones_like(ids)).equal(layout(ids, torch.ones_like(ids)))
    assert card.embedding == Embedding(normalize=False) and stated_config(tmp_path / "sparse").head.kind == "sparse"

    manifest = export_package(asked, tokens, card, tmp_path / "tiny", precision="int8", family=family)
    assert manifest.tasks == ("embed_sparse", "rerank") and manifest.dimensions == 120


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("1_SpladePooling/config.json", {"pooling_strategy": "sum"}, "pooling_strategy is 'sum', which is not"),
        ("1_SpladePooling/config.json", {"activation_function": "log1p_relu"}, "activation_function is 'log1p_relu'"),
        (
            "config_sentence_transformers.json",
            {"max_active_dims": 0},
            "max_active_dims is 0; it must be a",
        ),
        ("sentence_bert_config.json", {"transformer_task": "feature-extraction"}, "transformer_task is 'feature-ex"),
        ("config.json", {"architectures": ["BertModel"]}, "only names that end in"),
        ("config.json", {"architectures": ["BertForTokenClassification"]}, "the head's are tag"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(
    file: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    change(tmp_path / "sparse" / file, **changes)

    with pytest.raises(CheckpointError) as error:
        check_description(tmp_path / "sparse")
    assert words in str(error.value)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_transformer_must_say_that_it_fills_in_words(tmp_path: Path, *, is_there: bool) -> None:
    saved(tmp_path)
    path = tmp_path / "sparse" / "sentence_bert_config.json"
    settings = json.loads(path.read_text())
    del settings["transformer_task"]
    path.unlink()
    if is_there:
        path.write_text(json.dumps(settings))

    with pytest.raises(CheckpointError, match="transformer_task is not stated; it must be 'fill-mask'"):
        check_description(tmp_path / "sparse")


@pytest.mark.parametrize(("stated", "similarity"), [({}, None), ({"similarity_fn_name": "cosine"}, "cosine")])
def test_how_many_words_are_kept_and_how_they_are_compared_is_read(
    stated: dict[str, str], similarity: str | None, tmp_path: Path
) -> None:
    saved(tmp_path, max_active_dims=7, **stated)
    _, _, card, _ = read_checkpoint(tmp_path / "sparse", "tiny", "MIT", scratch=tmp_path)

    assert card.embedding is not None
    assert (card.embedding.max_words, card.embedding.similarity) == (7, similarity)


def test_what_fills_in_no_words_makes_no_sparse_vectors(tmp_path: Path) -> None:
    saved(tmp_path)
    change(tmp_path / "body" / "config.json", architectures=["BertModel"])

    with pytest.raises(CheckpointError, match="pooling is splade, for which a model must fill in words"):
        check_description(tmp_path / "body", pooling="splade")


def test_parts_that_are_no_transformer_and_pooling_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    modules = tmp_path / "sparse" / "modules.json"
    first, second = json.loads(modules.read_text())
    modules.write_text(json.dumps([{**first, "type": "sentence_transformers.base.modules.router.Router"}, second]))

    with pytest.raises(CheckpointError, match="Router, SpladePooling is not supported"):
        check_description(tmp_path / "sparse")
