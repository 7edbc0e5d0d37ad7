"""Encoder–decoders against transformers, in torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from model.architectures import EncoderDecoder
from model.checkpoints.errors import CheckpointError
from tests.model.checkpoints.parity import assert_equal, converted, random_weights

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 44,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
T5_SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "d_model": 24,
    "d_kv": 10,
    "d_ff": 44,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
}
GENERATOR = torch.Generator().manual_seed(0)
SOURCE = torch.randint(3, 99, (3, 30), generator=GENERATOR)
TARGET = torch.randint(3, 99, (3, 22), generator=GENERATOR)
LENGTHS = torch.tensor([30, 1, 17])
MASK = (torch.arange(30) < LENGTHS[:, None]).long()


def seq2seq(kind: str, model: str, **changes: Any) -> Any:
    return getattr(transformers, model)(getattr(transformers, f"{kind}Config")(**{**SIZES, **changes}))


def t5(kind: str = "T5", **changes: Any) -> Any:
    config = getattr(transformers, f"{kind}Config")(**{**T5_SIZES, **changes})
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def assert_same_logits(theirs: Any, ours: Any) -> None:
    assert isinstance(ours, EncoderDecoder)
    source = SOURCE.where(MASK.bool(), theirs.config.pad_token_id)
    expected = theirs(input_ids=source, attention_mask=MASK, decoder_input_ids=TARGET, output_hidden_states=True)
    assert_equal(ours(source, MASK, TARGET), expected.logits)
    hidden = ours.encode(source, MASK)
    for row, length in enumerate(LENGTHS):
        assert_equal(hidden[row, :length], expected.encoder_last_hidden_state[row, :length])


MARIAN, BART = ("Marian", "MarianMTModel"), ("Bart", "BartForConditionalGeneration")
MBART, PEGASUS = ("MBart", "MBartForConditionalGeneration"), ("Pegasus", "PegasusForConditionalGeneration")
M2M100 = ("M2M100", "M2M100ForConditionalGeneration")


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (MARIAN, {"activation_function": "swish", "scale_embedding": True}),
        (MARIAN, {"activation_function": "relu", "d_model": 36}),
        (MARIAN, {"activation_function": "gelu", "decoder_layers": 1, "pad_token_id": 98, "vocab_size": 101}),
        (BART, {}),
        (BART, {"activation_function": "gelu_new", "scale_embedding": True, "encoder_layers": 3, "decoder_layers": 1}),
        (MBART, {"scale_embedding": True}),
        (MBART, {"activation_function": "relu", "encoder_attention_heads": 2, "decoder_attention_heads": 2}),
        (PEGASUS, {"scale_embedding": True}),
        (M2M100, {}),
        (M2M100, {"activation_function": "gelu", "scale_embedding": False, "d_model": 36}),
    ],
)  # fmt: skip
def test_the_bart_like_give_the_logits_of_transformers(kind: tuple[str, str], changes: dict[str, Any]) -> None:
    theirs = random_weights(seq2seq(*kind, **changes))
    assert_same_logits(theirs, converted(theirs))


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("T5", {}),
        ("T5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
        ("T5", {"feed_forward_proj": "gated-relu", "num_decoder_layers": None}),
        ("T5", {"feed_forward_proj": "gelu", "vocab_size": 103, "layer_norm_epsilon": 1e-3}),
        ("T5", {"feed_forward_proj": "gated-silu", "relative_attention_max_distance": 128}),
        ("MT5", {}),
    ],
)
def test_t5_gives_the_logits_of_transformers(kind: str, changes: dict[str, Any]) -> None:
    theirs = random_weights(t5(kind, **changes))
    assert_same_logits(theirs, converted(theirs))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["T5", "MT5"])
def test_t5_with_an_output_matrix_of_its_own_gives_the_logits_of_transformers(kind: str) -> None:
    theirs = random_weights(t5(kind, feed_forward_proj="gated-gelu", tie_word_embeddings=False))
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn(99, 24, generator=GENERATOR))
    ours = converted(theirs, tie_word_embeddings=False)  # as published files say it

    assert not ours.config.head.tied and ours.config.head.scale is None
    assert_same_logits(theirs, ours)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"decoder_attention_heads": 2}, "decoder_attention_heads is 2; only 4 is supported"),
        ({"decoder_ffn_dim": 48}, "decoder_ffn_dim is 48; only 44 is supported"),
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False; only True is"),
        ({"decoder_vocab_size": 98}, "decoder_vocab_size is 98; only 99 is supported"),
        ({"activation_function": "mish"}, "the activation 'mish' is not supported"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False; only True is supported"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(config: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError) as error:
        converted(seq2seq(*MARIAN, activation_function="swish"), **config)
    assert words in str(error.value)
