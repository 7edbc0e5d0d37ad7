from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from model.architectures import DecoderLM, TextEncoder
from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import FAMILIES
from tests.checkpoints import convert
from tests.model.checkpoints.parity import assert_equal, converted, random_weights

SIZES: dict[str, Any] = {"vocab_size": 99, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


def gpt2(**changes: Any) -> Any:
    sizes = {**SIZES, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 40, **changes}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))


def bert() -> Any:
    config = transformers.BertConfig(
        **SIZES, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, num_labels=3
    )
    return transformers.BertForSequenceClassification(config)


OUTPUTS = ("lm_head.weight", "decoder.weight")
IDS = torch.randint(3, 99, (2, 9), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 9, [1] * 6 + [0] * 3])


@torch.no_grad()
@pytest.mark.parametrize("activation", ["gelu_new", "gelu", "relu"])
def test_gpt2_gives_the_logits_of_transformers(activation: str) -> None:
    theirs = random_weights(gpt2(activation_function=activation))
    ours = converted(theirs)

    assert isinstance(ours, DecoderLM)
    assert_equal(ours(IDS), theirs(IDS).logits)


@torch.no_grad()
def test_bert_gives_the_logits_of_transformers() -> None:
    theirs = random_weights(bert())
    ours = converted(theirs)

    assert isinstance(ours, TextEncoder)
    assert_equal(ours(IDS, MASK, IDS % 2), theirs(IDS, MASK, token_type_ids=IDS % 2).logits)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True; only False"),
        ({"activation_function": "mish"}, "the activation 'mish' is not supported; one of relu"),
        ({"n_layer": 3}, "no tensor of its weights becomes decoder.blocks.2"),
        ({"n_layer": 1}, "this configuration has no decoder.blocks.1"),
        ({"n_positions": 41}, "shape is (40, 32); embeddings.positions.weight needs (41, 32)"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError) as error:
        converted(gpt2(), **config)
    assert words in str(error.value)


def test_an_unknown_tensor_is_refused() -> None:
    theirs = gpt2()
    tensors = {**theirs.state_dict(), "transformer.adapter": torch.ones(1)}

    with pytest.raises(CheckpointError, match=r"transformer\.adapter: its weights have a tensor of this name"):
        convert(FAMILIES["gpt2"], theirs.config.to_dict(), tensors)


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_words_that_are_not_tied_and_have_no_output_matrix_are_refused_with_a_way_out(family: str) -> None:
    theirs = gpt2() if family == "gpt2" else transformers.BertForMaskedLM(bert().config)
    kept = {name: tensor for name, tensor in theirs.state_dict().items() if not name.endswith(OUTPUTS)}
    config = {**theirs.config.to_dict(), "architectures": [type(theirs).__name__]}
    convert(FAMILIES[family], config, kept)

    with pytest.raises(
        CheckpointError, match=r"becomes head\..*output\.weight; .*; if it is, set tie_word_embeddings to"
    ):
        convert(FAMILIES[family], {**config, "tie_word_embeddings": False}, kept)


def test_a_classifier_without_its_matrix_is_told_nothing_of_words() -> None:
    theirs = bert()
    tensors = {name: tensor for name, tensor in theirs.state_dict().items() if name != "classifier.weight"}
    config = {**theirs.config.to_dict(), "architectures": ["BertForSequenceClassification"]}

    with pytest.raises(CheckpointError, match=r"head\.output\.weight; it was saved without them, or .* kind of head$"):
        convert(FAMILIES["bert"], {**config, "tie_word_embeddings": False}, tensors)


@torch.no_grad()
def test_an_output_matrix_that_is_not_the_word_embedding_is_the_models_own() -> None:
    theirs = random_weights(gpt2())
    tensors = {**theirs.state_dict(), "lm_head.weight": torch.ones(99, 32)}
    ours = convert(FAMILIES["gpt2"], theirs.config.to_dict(), tensors)

    theirs.lm_head.weight = torch.nn.Parameter(torch.ones(99, 32))
    assert not ours.config.head.tied
    assert_equal(ours(IDS), theirs(IDS).logits)
