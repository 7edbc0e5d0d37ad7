from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from model.architectures import DecoderLM, EncoderDecoder, TextEncoder
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import convert
from model.checkpoints.read import FAMILIES, read_checkpoint
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import train_wordpiece

SIZES: dict[str, Any] = {"vocab_size": 99, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
SEQ2SEQ: dict[str, Any] = {
    **SIZES,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 40,
    "decoder_start_token_id": 2,
}


def gpt2(**changes: Any) -> Any:
    sizes = {**SIZES, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 40, **changes}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))


def bart() -> Any:
    return transformers.BartForConditionalGeneration(transformers.BartConfig(**SEQ2SEQ))


def marian() -> Any:
    config = transformers.MarianConfig(**SEQ2SEQ, activation_function="swish", scale_embedding=True)
    return transformers.MarianMTModel(config)


def bert() -> Any:
    config = transformers.BertConfig(
        **SIZES, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, num_labels=3
    )
    return transformers.BertForSequenceClassification(config)


def random_weights(model: Any) -> Any:
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "embed_positions" not in name:
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model.eval()


def converted(theirs: Any, **config: Any) -> Any:
    given = {**theirs.config.to_dict(), **config}
    return convert(FAMILIES[given["model_type"]], given, theirs.state_dict())


def assert_equal(ours: Tensor, theirs: Tensor) -> None:
    assert ((ours - theirs).abs().max() / theirs.abs().max()).item() < 1e-4


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
@pytest.mark.parametrize("make", [bart, marian])
def test_translators_give_the_logits_of_transformers(make: Any) -> None:
    theirs = random_weights(make())
    ours = converted(theirs)

    assert isinstance(ours, EncoderDecoder)
    expected = theirs(input_ids=IDS, attention_mask=MASK, decoder_input_ids=IDS).logits
    assert_equal(ours(IDS, MASK, IDS), expected)


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
        ({"n_layer": 3}, "the checkpoint lacks 16 parameters, the first decoder.blocks.2"),
        ({"n_layer": 1}, "this configuration has no decoder.blocks.1"),
        ({"n_positions": 41}, "shape is (40, 32); embeddings.positions.weight needs (41, 32)"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError) as error:
        converted(gpt2(), **config)
    assert words in str(error.value)


def test_unknown_and_untied_tensors_are_refused() -> None:
    theirs = gpt2()
    tensors = dict(theirs.state_dict())
    config = theirs.config.to_dict()

    with pytest.raises(CheckpointError, match=r"transformer\.adapter: no parameter has this name"):
        convert(FAMILIES["gpt2"], config, {**tensors, "transformer.adapter": torch.ones(1)})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight: differs from another tensor"):
        convert(FAMILIES["gpt2"], config, {**tensors, "lm_head.weight": torch.ones(99, 32)})


def save(model: Any, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(model.config.to_dict()))
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(tensors, folder / "model.safetensors")
    train_wordpiece(["a b c"], 60).save(str(folder / TOKENIZER_FILE))


def test_a_folder_is_read_with_its_tokens_and_task(tmp_path: Path) -> None:
    save(gpt2(), tmp_path)
    model, tokens, card, family = read_checkpoint(tmp_path, "tiny", "MIT")

    assert isinstance(model, DecoderLM) and family == "gpt2"
    assert (card.name, card.task, card.licence) == ("tiny", "generate", "MIT")
    assert (tokens.special_ids.pad, tokens.special_ids.start, tokens.special_ids.end) == (1, 0, 2)


def test_what_a_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no config\.json"):
        read_checkpoint(tmp_path, "tiny", "MIT")
    save(gpt2(), tmp_path)
    with pytest.raises(CheckpointError, match="a model for generate has no languages"):
        read_checkpoint(tmp_path, "tiny", "MIT", ("en", "de"))
    (tmp_path / TOKENIZER_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"there is no tokenizer\.json"):
        read_checkpoint(tmp_path, "tiny", "MIT")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(CheckpointError, match="the family 'llama' is not supported; one of gpt2"):
        read_checkpoint(tmp_path, "tiny", "MIT")
