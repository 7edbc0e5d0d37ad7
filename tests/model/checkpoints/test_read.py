from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.architectures import DecoderLM
from model.card import Card
from model.checkpoints.errors import CheckpointError
from model.checkpoints.files import count_numbers
from model.checkpoints.read import check_description, read_checkpoint, stated_config
from model.checkpoints.tokenizer import read_tokenizer
from model.checkpoints.weights import open_weights
from model.package.manifest import TOKENIZER_FILE
from tests.model.checkpoints.conftest import change

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


Read = Callable[..., tuple[Any, Any, Card, str]]


@pytest.fixture
def read(folder: Path, tmp_path: Path) -> Read:
    return lambda **options: read_checkpoint(folder, "tiny", "MIT", scratch=tmp_path, **options)


def split(folder: Path) -> list[str]:
    """Keep the weights in two files with an index; their names."""
    tensors = load_file(folder / WEIGHTS)
    names = sorted(tensors)
    files = {name: f"model-0000{1 + place % 2}-of-00002.safetensors" for place, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, folder / file)
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": files}))
    return sorted(set(files.values()))


def test_a_field_that_nobody_knows_is_refused_with_its_folder_and_a_way_out(folder: Path) -> None:
    change(folder / "config.json", rope_twist=3)

    with pytest.raises(CheckpointError, match=rf"{folder}: config.json: rope_twist is 3; .* in a copy"):
        stated_config(folder)


def test_a_folder_is_read_with_its_tokens_and_task(folder: Path, read: Read) -> None:
    model, tokens, card, family = read()

    assert isinstance(model, DecoderLM) and family == "gpt2"
    assert (card.name, card.task, card.licence) == ("tiny", "generate", "MIT")
    end = json.loads((folder / "config.json").read_text())["eos_token_id"]
    assert (tokens.special_ids.start, tokens.special_ids.end, tokens.file) == (end, end, folder / TOKENIZER_FILE)


def test_weights_may_be_in_several_files(folder: Path, read: Read) -> None:
    whole, *_ = read()
    split(folder)
    parts, *_ = read()

    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))


def test_what_of_several_files_is_missing_is_named(folder: Path, read: Read) -> None:
    first, second = split(folder)
    (folder / first).unlink()
    with pytest.raises(CheckpointError, match=f"{first} is missing, and model.safetensors.index.json lists it"):
        read()
    torch.save({}, folder / "pytorch_model.bin")  # of before
    (folder / second).unlink()
    with pytest.raises(CheckpointError, match=f"{first} is missing, and model.safetensors.index.json lists it"):
        read(allow_pickle=True)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"'\.\./elsewhere\.safetensors' is not the name of a file"):
        read()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": ["elsewhere.safetensors"]}}))
    with pytest.raises(CheckpointError, match=r"elsewhere\.safetensors'\]\" is no .safetensors file"):
        read()
    (folder / INDEX).write_text("{}")
    with pytest.raises(CheckpointError, match="there is no weight_map"):
        read()


def test_no_index_makes_a_pickle_of_what_needs_no_trust(folder: Path, read: Read) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "weights.bin")
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "weights.bin"}}))

    with pytest.raises(CheckpointError, match=r"'weights\.bin' is no \.safetensors file"):
        read()


def test_an_index_of_before_is_passed_over_where_there_is_the_whole_file(folder: Path, read: Read) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}))

    read()


def test_a_pickle_is_only_read_when_asked_for(folder: Path, read: Read) -> None:
    tensors = load_file(folder / WEIGHTS)
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()

    with pytest.raises(CheckpointError, match=r"in pytorch_model\.bin, a pickle, which is only taken with --allow"):
        read()
    model, *_ = read(allow_pickle=True)
    assert torch.equal(model.embeddings.words.weight, tensors["transformer.wte.weight"])


def test_a_pickle_of_an_old_torch_is_read_too(folder: Path, read: Read) -> None:
    tensors = load_file(folder / WEIGHTS)
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    (folder / WEIGHTS).unlink()

    model, *_ = read(allow_pickle=True)
    assert torch.equal(model.embeddings.words.weight, tensors["transformer.wte.weight"])


def test_a_pickle_that_may_be_read_is_left_where_there_is_something_better(folder: Path, read: Read) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"never looked at")

    model, *_ = read(allow_pickle=True)
    assert torch.equal(model.embeddings.words.weight, load_file(folder / WEIGHTS)["transformer.wte.weight"])


def test_a_tensor_is_read_when_it_is_asked_for(folder: Path) -> None:
    expected = load_file(folder / WEIGHTS)
    with open_weights(folder) as tensors:
        assert set(tensors) == set(expected) and len(tensors) == len(expected)
        assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors.items())
        with pytest.raises(KeyError):
            tensors["none"]


def test_no_weights_are_drawn_that_the_checkpoint_replaces(read: Read) -> None:
    before = torch.get_rng_state()
    model, *_ = read()

    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_weights_of_half_precision_are_read(folder: Path, read: Read) -> None:
    whole, *_ = read()
    save_file({name: tensor.bfloat16() for name, tensor in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS)
    half, *_ = read()

    assert {parameter.dtype for parameter in half.parameters()} == {torch.float32}
    assert all(torch.allclose(a, b, atol=1e-2) for a, b in zip(whole.parameters(), half.parameters(), strict=True))


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_broken_file_is_named(content: bytes, folder: Path, read: Read) -> None:
    (folder / WEIGHTS).write_bytes(content)

    with pytest.raises(CheckpointError, match=rf"{WEIGHTS}: cannot be read|no tensor of its weights"):
        read()
    if content != b"\x08\0\0\0\0\0\0\0{}      ":
        with pytest.raises(CheckpointError, match=f"{WEIGHTS}: is no safetensors file"):
            count_numbers([folder / WEIGHTS])


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_what_git_leaves_in_a_files_place_without_lfs_is_told_so(name: str, folder: Path, read: Read) -> None:
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")

    with pytest.raises(CheckpointError, match=rf"{name}: is a pointer of Git LFS, .* run `git lfs pull`"):
        read()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04cut", pickle.dumps(Path("an object"))])
def test_a_pickle_that_cannot_be_read_is_told_in_our_own_words(content: bytes, folder: Path, read: Read) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(content)

    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: cannot be read: it is cut short") as error:
        read(allow_pickle=True)
    assert "weights_only" not in str(error.value)


def test_what_a_folder_lacks_is_named(folder: Path, read: Read) -> None:
    with pytest.raises(CheckpointError, match="a model for generate has no languages"):
        read(languages=("en", "de"))
    (folder / TOKENIZER_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"there is neither tokenizer\.json nor vocab\.json"):
        read()
    (folder / TOKENIZER_FILE).write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read"):
        read()
    (folder / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read|there are no weights"):
        read()
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"there is no config\.json"):
        read()


def test_a_configuration_is_checked_without_anything_else(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "config.json":
            path.unlink()
    assert stated_config(folder).architecture == "decoder"

    change(folder / "config.json", model_type="brand_new")
    with pytest.raises(CheckpointError, match="the family 'brand_new' is not supported; one of albert"):
        stated_config(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json: must hold a JSON object"):
        stated_config(folder)


def test_how_outputs_are_chosen_is_checked_before_weights_are_there(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "generation_config.json").write_text(json.dumps({"penalty_alpha": 0.6}))

    with pytest.raises(CheckpointError, match=r"generation_config\.json: penalty_alpha is 0\.6"):
        stated_config(folder)


@pytest.mark.parametrize("changes", [{"n_layer": "1"}, {"n_embd": None}, {"n_head": 0}, {"n_inner": "wide"}])
def test_a_field_of_another_kind_is_refused_in_a_sentence(changes: dict[str, Any], folder: Path) -> None:
    change(folder / "config.json", **changes)

    with pytest.raises(CheckpointError, match=r"config\.json: "):
        stated_config(folder)


@pytest.mark.parametrize(
    "changes",
    [{"n_layer": 10**9}, {"resid_pdrop": "much"}, {"architectures": ["GPT2ForTokenClassification"]}],
)
def test_numbers_that_would_take_gigabytes_or_the_wrong_type_are_refused_at_once(
    changes: dict[str, Any], folder: Path
) -> None:
    change(folder / "config.json", **changes, num_labels=10**9)

    with pytest.raises(CheckpointError, match=r"config\.json: "):
        stated_config(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_json_that_is_nested_without_end_is_refused(name: str, folder: Path) -> None:
    (folder / name).write_text('{"a": ' * 100_000)

    with pytest.raises(CheckpointError, match=f"{name}: cannot be read"):
        check_description(folder)


def test_weights_that_are_no_floating_point_numbers_are_refused(folder: Path, read: Read) -> None:
    save_file({name: tensor.to(torch.int8) for name, tensor in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS)

    with pytest.raises(CheckpointError, match=r"its numbers are torch\.int8; weights are floating-point numbers"):
        read()


def test_special_tokens_that_the_model_does_not_have_are_refused_before_any_work(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    change(folder / "config.json", eos_token_id=50256, bos_token_id=50256)
    (folder / "generation_config.json").unlink(missing_ok=True)

    with pytest.raises(CheckpointError, match=r"the id of the token for pad \(.*\) is 50256; the model's go from 0 to"):
        check_description(folder)
    count = json.loads((folder / "config.json").read_text())["vocab_size"]
    change(folder / "config.json", eos_token_id=count, bos_token_id=count)
    with pytest.raises(CheckpointError, match=f"is {count}; the model's go from 0 to {count - 1}"):
        check_description(folder)


def test_a_model_that_is_not_given_the_types_of_texts_has_pairs_of_one(bert: Path, tmp_path: Path) -> None:
    tokenizer = read_tokenizer(bert / TOKENIZER_FILE)
    assert set(tokenizer.encode("a", "a").type_ids) == {0, 1}
    both, distil = ["input_ids", "token_type_ids"], {"tokenizer_class": "DistilBertTokenizerFast"}
    cases: list[tuple[dict[str, Any], set[int]]] = [
        ({"model_input_names": ["input_ids", "attention_mask"]}, {0}),
        ({"model_input_names": both}, {0, 1}),
        (distil, {0}),
        ({**distil, "model_input_names": both}, {0, 1}),
        ({"tokenizer_class": "BertTokenizer"}, {0, 1}),
        ({"tokenizer_class": "TokenizersBackend"}, {0}),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "saved_by": "5.24.0"}, {0}),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "saved_by": "4.57.1"}, {0, 1}),
        ({"tokenizer_class": "AlbertTokenizer", "saved_by": "4.30.0"}, {0, 1}),
        ({"tokenizer_class": "AlbertTokenizerFast", "saved_by": "5.0.0"}, {0}),
    ]
    for said, types in cases:
        change(bert / "config.json", transformers_version=said.get("saved_by", "5.24.0"))
        (bert / "tokenizer_config.json").write_text(json.dumps(said))
        _, tokens, _, _ = read_checkpoint(bert, "tiny", "MIT", scratch=tmp_path)
        assert tokens is not None
        assert set(read_tokenizer(tokens.file).encode("a", "a").type_ids) == types


@pytest.mark.parametrize(("stated", "longest"), [(24, 24), (10**30, None), (None, None)])
def test_texts_are_as_long_as_the_tokenizer_says_where_it_knows(
    stated: int | None, longest: int | None, bert: Path, tmp_path: Path
) -> None:
    (bert / "tokenizer_config.json").write_text(json.dumps({"model_max_length": stated}))
    _, _, card, _ = read_checkpoint(bert, "tiny", "MIT", scratch=tmp_path)

    assert card.max_input_tokens == longest


@pytest.mark.parametrize(("stated", "side"), [({}, "right"), ({"truncation_side": "left"}, "left")])
def test_texts_lose_the_side_that_the_tokenizer_names(
    stated: dict[str, str], side: str, bert: Path, tmp_path: Path
) -> None:
    (bert / "tokenizer_config.json").write_text(json.dumps(stated))
    _, tokens, _, _ = read_checkpoint(bert, "tiny", "MIT", scratch=tmp_path)

    assert tokens is not None and tokens.truncation_side == side


@pytest.mark.parametrize(
    ("stated", "mask"),
    [({}, "[MASK]"), ({"mask_token": "[SEP]"}, "[SEP]"), ({"mask_token": {"content": "[CLS]"}}, "[CLS]")],
)
def test_what_stands_for_a_missing_word_is_named_by_the_tokenizer_or_by_custom(
    stated: dict[str, Any], mask: str, bert: Path, tmp_path: Path
) -> None:
    (bert / "tokenizer_config.json").write_text(json.dumps(stated))
    _, tokens, _, _ = read_checkpoint(bert, "tiny", "MIT", scratch=tmp_path)

    assert tokens is not None
    assert tokens.special_ids.mask == read_tokenizer(tokens.file).token_to_id(mask)


def test_what_stands_for_a_missing_word_may_be_named_beside_the_tokenizers_config(bert: Path, tmp_path: Path) -> None:
    (bert / "tokenizer_config.json").write_text("{}")
    (bert / "special_tokens_map.json").write_text(json.dumps({"mask_token": {"content": "[SEP]"}}))
    _, tokens, _, _ = read_checkpoint(bert, "tiny", "MIT", scratch=tmp_path)

    assert tokens is not None
    assert tokens.special_ids.mask == read_tokenizer(tokens.file).token_to_id("[SEP]")


def test_a_padding_that_is_no_id_is_refused_by_name(bert: Path, tmp_path: Path) -> None:
    change(bert / "config.json", pad_token_id=-1)

    with pytest.raises(CheckpointError, match="pad_token_id is -1; it must be one id"):
        read_checkpoint(bert, "tiny", "MIT", scratch=tmp_path)


def test_added_tokens_that_the_model_has_no_vectors_for_are_left_out(folder: Path, read: Read) -> None:
    content = json.loads((folder / TOKENIZER_FILE).read_text())
    count = json.loads((folder / "config.json").read_text())["vocab_size"]
    content["model"]["vocab"]["<mask>"] = count  # BART's are in both
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for number, token in enumerate(("<mask>", "<image>")):
        content["added_tokens"].append({"id": count + number, "content": token, "special": True, **flags})
    (folder / TOKENIZER_FILE).write_text(json.dumps(content))

    _, tokens, *_ = read()
    tokenizer = read_tokenizer(tokens.file)

    assert max(tokenizer.get_vocab(with_added_tokens=True).values()) < count
    assert max(tokenizer.encode("The <mask> and the <image>.").ids) < count


def test_a_token_that_is_added_to_each_text_must_be_the_models(folder: Path, read: Read) -> None:
    content = json.loads((folder / TOKENIZER_FILE).read_text())
    count = json.loads((folder / "config.json").read_text())["vocab_size"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"].append({"id": count, "content": "<s>", "special": True, **flags})
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [count], "tokens": ["<s>"]}},
    }
    (folder / TOKENIZER_FILE).write_text(json.dumps(content))

    with pytest.raises(CheckpointError, match=rf"the id {count}, of '<s>', but the model knows {count}"):
        read()


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(folder: Path, read: Read) -> None:
    content = json.loads((folder / TOKENIZER_FILE).read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {f"more{number}": len(vocabulary) + number for number in range(3)}
    (folder / TOKENIZER_FILE).write_text(json.dumps(content))

    with pytest.raises(CheckpointError, match=r"the tokenizer has the id \d+, of 'more2', but the model knows \d+"):
        read()
