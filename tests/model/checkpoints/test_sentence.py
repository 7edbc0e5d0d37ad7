from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import check_description, read_checkpoint, stated_config
from model.checkpoints.sentence import PoolingMode, read_layout
from model.package import Embedding, PackageTokenizer
from model.package.inputs import pad_rows
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import train_wordpiece
from tests.conftest import TEXTS
from tests.model.checkpoints.conftest import change, write_json
from tests.model.checkpoints.parity import TOLERANCE, error_of, random_weights

MODULES = ["Transformer", "Pooling", "Normalize"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random BERT and its tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = train_wordpiece(TEXTS, 120)
    config = transformers.BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
    )
    random_weights(transformers.BertModel(config)).save_pretrained(folder)
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return folder


def library(bert: Path, *more: Any, pooling: str = "mean") -> SentenceTransformer:
    return SentenceTransformer(modules=[Transformer(str(bert)), Pooling(32, pooling), *more], device="cpu")


def linear(width: int, output_width: int, *, bias: bool = True) -> Dense:
    """Return a map without an activation."""
    return Dense(width, output_width, bias=bias, activation_function=torch.nn.Identity())


@torch.no_grad()
@pytest.mark.parametrize(
    ("pooling", "more"),
    [
        ("mean", [Normalize()]),
        ("cls", [Dense(32, 32), Normalize()]),
        ("mean", [Dense(32, 20), Normalize()]),
        ("mean", [Dense(32, 48)]),
        ("lasttoken", [Dense(32, 32, bias=False, activation_function=torch.nn.GELU())]),
        ("mean", [Dense(32, 48, activation_function=torch.nn.Identity())]),
        ("mean", [linear(32, 96, bias=False), linear(96, 32, bias=False), Normalize()]),
        ("mean", [linear(32, 24), linear(24, 40, bias=False), Dense(40, 20)]),
    ],
)
def test_vectors_are_those_of_the_library(bert: Path, tmp_path: Path, pooling: str, more: list[Any]) -> None:
    theirs = library(bert, *more, pooling=pooling)
    theirs.save(str(tmp_path), create_model_card=False)
    model, tokens, card, _ = read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)
    assert tokens is not None
    tokenizer = PackageTokenizer.load(tokens.file)
    ids, lengths = pad_rows([tokenizer.encode(text).shortened(card.max_input_tokens or 0).ids for text in TEXTS], 0)
    ours = model(torch.from_numpy(ids), torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None])
    assert card.embedding is not None and card.task == "embed"
    if card.embedding.normalize:
        ours = torch.nn.functional.normalize(ours, dim=-1)

    assert error_of(ours, torch.tensor(np.asarray(theirs.encode(TEXTS)))) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("mode", ["cls", "mean", "lasttoken"])
def test_a_model_without_a_layout_makes_vectors_as_it_is_asked_to(bert: Path, mode: PoolingMode) -> None:
    model, tokens, card, _ = read_checkpoint(bert, "tiny", "MIT", scratch=bert, pooling=mode)
    assert tokens is not None and card.embedding == Embedding(normalize=False)
    ids, lengths = pad_rows([PackageTokenizer.load(tokens.file).encode(text).ids[:40] for text in TEXTS], 0)
    real = torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None]
    hidden = transformers.AutoModel.from_pretrained(bert)(torch.from_numpy(ids), real.long()).last_hidden_state
    expected = {
        "cls": hidden[:, 0],
        "mean": torch.stack([row[:length].mean(0) for row, length in zip(hidden, lengths, strict=True)]),
        "lasttoken": hidden[torch.arange(len(ids)), torch.from_numpy(lengths).long() - 1],
    }

    assert error_of(model(torch.from_numpy(ids), real), expected[mode]) < TOLERANCE


def test_what_says_how_its_vectors_are_made_is_asked_for_no_other_way(bert: Path, tmp_path: Path) -> None:
    library(bert).save(str(tmp_path), create_model_card=False)
    with pytest.raises(CheckpointError, match=r"modules\.json says how its vectors are made; leave pooling out"):
        read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path, pooling="mean")


@pytest.mark.parametrize(
    "kind", ["ForSequenceClassification", "ForQuestionAnswering", "ForMultipleChoice", "LMHeadModel"]
)
@pytest.mark.parametrize("is_list", [True, False])
def test_a_model_with_a_head_has_no_vectors(kind: str, is_list: bool, bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    change(tmp_path / "config.json", architectures=[f"Bert{kind}"] if is_list else f"Bert{kind}")
    with pytest.raises(CheckpointError, match="it has a head; leave pooling out"):
        check_description(tmp_path, pooling="mean")


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining", "Contriever"])
def test_a_model_that_was_only_pretrained_has_vectors(name: str, bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    change(tmp_path / "config.json", architectures=[name])

    check_description(tmp_path, pooling="mean")


def test_a_translator_makes_no_vectors(bert: Path, tmp_path: Path) -> None:
    config = transformers.MarianConfig(vocab_size=9, pad_token_id=0)
    write_json(tmp_path, config={**config.to_dict(), "architectures": ["MarianMTModel"]})
    with pytest.raises(CheckpointError, match="a marian makes no vectors; leave pooling out"):
        check_description(tmp_path, pooling="mean")


@torch.no_grad()
@pytest.mark.parametrize("is_whole", [False, True])
def test_vectors_of_t5s_encoder_are_those_of_the_library(bert: Path, tmp_path: Path, *, is_whole: bool) -> None:
    (tmp_path / "t5").mkdir()
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **sizes)
    whole = random_weights(transformers.T5ForConditionalGeneration(config))
    whole.save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    theirs = library(tmp_path / "t5", linear(32, 24, bias=False), Normalize())
    theirs.save(str(tmp_path / "saved"), create_model_card=False)
    if is_whole:
        whole.save_pretrained(tmp_path / "saved")
    model, tokens, card, family = read_checkpoint(tmp_path / "saved", "tiny", "MIT", scratch=tmp_path)
    assert tokens is not None and card.task == "embed" and family == "t5"
    ids, lengths = pad_rows([PackageTokenizer.load(tokens.file).encode(text).ids for text in TEXTS], 0)
    ours = model(torch.from_numpy(ids), torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None])

    expected = torch.tensor(np.asarray(theirs.encode(TEXTS)))
    assert error_of(torch.nn.functional.normalize(ours, dim=-1), expected) < TOLERANCE


def test_prompts_and_the_longest_text_are_read(bert: Path, tmp_path: Path) -> None:
    theirs = library(bert)
    theirs.prompts, theirs.default_prompt_name = {"query": "query: ", "passage": "passage: "}, "passage"
    theirs.max_seq_length = 24
    theirs.save(str(tmp_path), create_model_card=False)
    (tmp_path / "sentence_albert_config.json").write_text('{"max_seq_length": 7}')  # which the library passes over
    _, _, card, _ = read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)

    assert card.max_input_tokens == 24
    prompts = {"query": "query: ", "passage": "passage: "}
    assert card.embedding == Embedding(normalize=False, prompts=prompts, default_prompt="passage", similarity="cosine")


def write(folder: Path, modules: list[str] | None = None, **files: dict[str, Any]) -> Path:
    """Write a layout as it was in the library's version 2; a file's name is that of a part, or of one beside them."""
    parts = [f"sentence_transformers.models.{name}" for name in modules or MODULES]
    listed = [
        {"idx": place, "name": str(place), "path": f"{place}_{kind.rpartition('.')[2]}" if place else "", "type": kind}
        for place, kind in enumerate(parts)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    written = {"1_Pooling": {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}, **files}
    for name, values in written.items():
        path = folder / name / "config.json" if name[0].isdigit() else folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize(
    ("stated", "read"), [("dot", "dot"), ("manhattan", "manhattan"), (None, None), ("dot_score", None)]
)
def test_how_vectors_are_compared_is_read(stated: str | None, read: str | None, bert: Path, tmp_path: Path) -> None:
    library(bert).save(str(tmp_path), create_model_card=False)
    change(tmp_path / "config_sentence_transformers.json", similarity_fn_name=stated)
    layout = read_layout(tmp_path)

    assert layout is not None and layout.embedding.similarity == read


def test_that_code_of_its_own_would_be_trusted_changes_nothing(bert: Path, tmp_path: Path) -> None:
    library(bert).save(str(tmp_path), create_model_card=False)
    change(tmp_path / "sentence_bert_config.json", model_args={"trust_remote_code": True})

    assert read_layout(tmp_path) is not None


@pytest.mark.parametrize("length", [0, "long", True])
def test_a_longest_text_that_is_no_length_is_refused(length: object, bert: Path, tmp_path: Path) -> None:
    library(bert).save(str(tmp_path), create_model_card=False)
    change(tmp_path / "sentence_bert_config.json", max_seq_length=length)
    with pytest.raises(CheckpointError, match=f"max_seq_length is {length!r}; it must be a whole number from 1"):
        check_description(tmp_path)


def test_old_files_are_read(tmp_path: Path) -> None:
    prompts: dict[str, Any] = {
        "prompts": {"query": "q: "},
        "default_prompt_name": "query",
        "__version__": {"pytorch": "1.8"},
    }
    short: dict[str, Any] = {"max_seq_length": 20, "do_lower_case": False}
    modes: dict[str, Any] = {
        "word_embedding_dimension": 32,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    files = {"1_Pooling": modes, "sentence_bert_config": short, "config_sentence_transformers": prompts}
    folder = write(tmp_path, None, **files)
    layout = read_layout(folder)

    assert layout is not None
    assert (layout.pooling, layout.max_tokens, layout.dense) == ("first", 20, ())
    assert layout.embedding == Embedding(normalize=True, prompts={"query": "q: "}, default_prompt="query")


@pytest.mark.parametrize("place", ["/etc", "1_Pooling/../../other"])
def test_parts_are_within_the_checkpoint(place: str, tmp_path: Path) -> None:
    modules = json.loads((write(tmp_path) / "modules.json").read_text())
    modules[1]["path"] = place
    (tmp_path / "modules.json").write_text(json.dumps(modules))

    with pytest.raises(CheckpointError, match="is no folder within the checkpoint's"):
        read_layout(tmp_path)


def test_without_a_list_of_modules_there_is_no_layout(tmp_path: Path) -> None:
    assert read_layout(tmp_path) is None


def test_what_asks_for_nothing_or_changes_no_answer_is_read_over(tmp_path: Path) -> None:
    loading = {"model_args": {"torch_dtype": "float32", "attn_implementation": "eager"}, "config_args": {}}
    library = {"truncate_dim": None, "of_a_later_version": None}
    write(tmp_path, config_sentence_transformers=library, sentence_bert_config=loading)

    assert read_layout(tmp_path) is not None


@pytest.mark.parametrize(
    ("modules", "files", "words"),
    [
        (
            ["Transformer", "Pooling", "LSTM"],
            {},
            "sentence_transformers.models.LSTM behind Transformer, Pooling is not",
        ),
        (["Transformer", "Pooling", "Normalize", "Dense"], {}, "Dense behind Transformer, Pooling, Normalize is not"),
        (["Transformer"], {}, "there is no Pooling"),
        (
            ["Transformer", "Pooling", "Dense", "Dense"],
            {f"{place}_Dense": {"in_features": 32, "out_features": 32} for place in (2, 3)},
            "2_Dense: an activation between two Dense is not supported",
        ),
        (None, {"1_Pooling": {"pooling_mode_max_tokens": True}}, "pooling is max; only one of cls, mean, lasttoken"),
        (
            None,
            {"1_Pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}},
            "pooling is cls, mean; only one of",
        ),
        (None, {"1_Pooling": {"include_prompt": False}}, "include_prompt is False"),
        (None, {"sentence_bert_config": {"query_length": 32}}, "query_length is 32"),
        (None, {"sentence_bert_config": {"model_args": {"head": "mine"}}}, "model_args is {'head': 'mine'}"),
        (None, {"config_sentence_transformers": {"truncate_dim": 8}}, "ask for vectors so wide: dimensions"),
        (None, {"2_Normalize": {"module_input_name": "token_embeddings"}}, "module_input_name is 'token_embeddings'"),
        (None, {"2_Normalize": {"module_output_name": "other"}}, "module_output_name is 'other'"),
        (
            None,
            {"config_sentence_transformers": {"model_type": "MultiVectorEncoder"}},
            "model_type is 'MultiVectorEncoder'",
        ),
        (
            ["Transformer", "Pooling", "Dense"],
            {"2_Dense": {"in_features": 32, "out_features": 32, "activation_function": "mine.Twist"}},
            "activation_function is 'mine.Twist'",
        ),
        (None, {"1_Pooling": {"twist": 3}}, "twist is 3, which is not supported"),
        (["Transformer", "Pooling", "Dense"], {"2_Dense": {"in_features": 32}}, "there is no out_features"),
        (
            ["Transformer", "Pooling", "Dense"],
            {"2_Dense": {"in_features": 32, "out_features": 32, "bias": "no"}},
            "bias is 'no'; it must be true or false",
        ),
        (["Transformer", "Pooling", "Dense"], {"2_Dense": {"in_features": 32, "out_features": 1.5}}, "whole numbers"),
        (
            None,
            {"config_sentence_transformers": {"default_prompt_name": "query"}},
            "default_prompt is 'query'; prompts has []",
        ),
    ],
)
def test_a_layout_that_is_not_supported_is_refused_by_name(
    tmp_path: Path, modules: list[str] | None, files: dict[str, Any], words: str
) -> None:
    with pytest.raises(CheckpointError) as error:
        read_layout(write(tmp_path, modules, **files))
    assert words in str(error.value)


def test_lower_casing_that_the_tokenizer_does_not_do_is_refused(bert: Path, tmp_path: Path) -> None:
    library(bert).save(str(tmp_path), create_model_card=False)
    path = tmp_path / "sentence_bert_config.json"
    path.write_text(json.dumps({"do_lower_case": True}))
    read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)  # the tokenizer does

    tokenizer = json.loads((tmp_path / TOKENIZER_FILE).read_text())
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps({**tokenizer, "normalizer": None}))
    with pytest.raises(CheckpointError, match="do_lower_case is true, but the tokenizer tells upper from lower case"):
        read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"weight": (1, 32), "bias": (20,)}, r"linear\.weight has the shape \(1, 32\) .*of the shape \(20, 32\)"),
        ({"weight": (20, 32), "bias": (1,)}, r"linear\.bias has the shape \(1,\) .*of the shape \(20,\)"),
        ({"weight": (20, 32), "bias": ()}, r"linear\.bias has the shape \(\) .*of the shape \(20,\)"),
        ({"weight": (20, 32)}, r"linear\.bias is not there; it must be floating-point numbers of the shape \(20,\)"),
        ({"weight": (20, 32), "bias": (20,), "scale": (1,)}, r"linear\.scale has the shape \(1,\) .*must be left out"),
    ],
)
def test_weights_behind_pooling_that_do_not_fit_are_named(
    tensors: dict[str, tuple[int, ...]], words: str, bert: Path, tmp_path: Path
) -> None:
    library(bert, Dense(32, 20)).save(str(tmp_path), create_model_card=False)
    stored = {f"linear.{name}": torch.ones(shape) for name, shape in tensors.items()}
    save_file(stored, tmp_path / "2_Dense" / "model.safetensors")

    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)


@pytest.mark.parametrize("lacks", ["idx", "type", "path"])
def test_a_list_of_modules_that_lacks_something_is_named(lacks: str, tmp_path: Path) -> None:
    path = write(tmp_path) / "modules.json"
    parts = [{name: value for name, value in part.items() if name != lacks} for part in json.loads(path.read_text())]
    path.write_text(json.dumps(parts))

    with pytest.raises(CheckpointError, match=rf"modules\.json: cannot be read: '{lacks}'"):
        read_layout(tmp_path)


def test_weights_behind_pooling_are_floating_point_numbers(bert: Path, tmp_path: Path) -> None:
    library(bert, linear(32, 20, bias=False)).save(str(tmp_path), create_model_card=False)
    save_file({"linear.weight": torch.ones(20, 32, dtype=torch.int8)}, tmp_path / "2_Dense" / "model.safetensors")

    with pytest.raises(CheckpointError, match=r"the type torch\.int8; it must be floating-point"):
        read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)


def test_a_bare_model_without_a_layout_has_sizes_and_is_refused(bert: Path) -> None:
    assert stated_config(bert).head.kind == "embed"  # its sizes do not depend on how vectors are made
    with pytest.raises(CheckpointError, match=r"needs modules\.json, or --pooling, to say how it makes vectors"):
        check_description(bert)
