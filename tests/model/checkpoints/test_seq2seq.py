"""Encoder–decoders against transformers, in torch."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from model.architectures import EncoderDecoder, EncoderDecoderReader, TextEncoder
from model.checkpoints.errors import CheckpointError
from model.checkpoints.files import read_config
from model.checkpoints.heads import VECTORS
from model.checkpoints.read import FAMILIES, family_of
from model.checkpoints.weights import open_weights
from model.sizes import SIZES
from tests.checkpoints import convert
from tests.model.checkpoints.parity import SEEDS, assert_equal, imported, loud_weights
from tests.model.checkpoints.published_seq2seq import PUBLISHED

CLASSES: dict[str, tuple[Any, Any]] = {
    "marian": (transformers.MarianConfig, transformers.MarianMTModel),
    "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration),
    "mt5": (transformers.MT5Config, transformers.MT5ForConditionalGeneration),
    "m2m_100": (transformers.M2M100Config, transformers.M2M100ForConditionalGeneration),
    "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
    "mbart": (transformers.MBartConfig, transformers.MBartForConditionalGeneration),
    "pegasus": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
}
SOURCE, TARGET = 40, 30  # tokens of the longest
ACTIVATIONS = ["relu", "gelu", "gelu_new", "silu"]


def random_config(family: str, seed: int) -> Any:
    """Draw a tiny configuration; every switch of the family is drawn too."""
    draw = random.Random(f"{family} {seed}")
    heads, width = draw.choice([1, 2, 3, 5]), draw.choice([4, 6, 10, 16])
    d_ff = draw.choice([22, 37, 48])
    sizes: dict[str, Any] = {"vocab_size": draw.choice([61, 97, 104]), "bos_token_id": 0}
    if family in {"t5", "mt5"}:
        kinds = [*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS)]
        buckets = draw.choice([4, 8, 32])
        sizes |= {"d_model": draw.choice([12, 21, 32]), "d_kv": width, "d_ff": d_ff, "num_heads": heads}
        sizes |= {"num_layers": draw.choice([1, 2, 3]), "num_decoder_layers": draw.choice([None, 1, 3])}
        sizes |= {"feed_forward_proj": draw.choice(kinds), "layer_norm_epsilon": draw.choice([1e-6, 1e-2])}
        sizes |= {"relative_attention_num_buckets": buckets, "tie_word_embeddings": draw.choice([True, False])}
        sizes |= {"relative_attention_max_distance": draw.choice([buckets, 33, 128])}
    else:
        sizes |= {f"{side}_attention_heads": heads for side in ("encoder", "decoder")}
        sizes |= {f"{side}_layers": draw.choice([1, 2, 3]) for side in ("encoder", "decoder")}
        sizes |= {f"{side}_ffn_dim": d_ff for side in ("encoder", "decoder")}
        sizes |= {"d_model": heads * width, "max_position_embeddings": draw.choice([SOURCE, 64])}
        sizes |= {"activation_function": draw.choice([*ACTIVATIONS, "swish"]), "eos_token_id": 2}
        sizes |= {"scale_embedding": draw.choice([True, False]), "decoder_start_token_id": 2}
        sizes["pad_token_id"] = draw.choice([1, 60]) if family == "marian" else 1
    return CLASSES[family][0](**sizes)


@pytest.mark.parametrize(
    ("said", "scales"),
    [
        *(({}, True), ({"scale_decoder_outputs": None}, False), ({"scale_decoder_outputs": False}, False)),
        ({"tie_word_embeddings": False}, False),
        ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, True),
    ],
)
def test_whether_a_t5_scales_is_what_its_file_says(said: dict[str, Any], scales: bool) -> None:
    assert (FAMILIES["t5"].to_config({**PUBLISHED["t5-small"], **said}).head.scale is not None) == scales


@torch.no_grad()
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", ["t5", "mt5"])
def test_an_encoder_alone_reads_as_in_transformers(family: str, seed: int, tmp_path: Path) -> None:
    config = random_config(family, seed)
    theirs = loud_weights(
        {"t5": transformers.T5EncoderModel, "mt5": transformers.MT5EncoderModel}[family](config), seed
    )
    for name, weight in theirs.named_parameters():
        if name.endswith(".q.weight"):
            weight.mul_(config.d_kv**-0.5)
    theirs.save_pretrained(tmp_path)
    written = read_config(tmp_path)
    family_of_it = family_of(written)
    assert family_of_it is not None
    with open_weights(tmp_path) as tensors:
        ours = convert(family_of_it, {**written, "architectures": [VECTORS]}, tensors)
    assert isinstance(ours, TextEncoder)
    ids = torch.randint(3, config.vocab_size, (2, SOURCE), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(SOURCE) < torch.tensor([[SOURCE], [11]])

    expected = theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    assert_equal(ours.encode(ids, mask)[mask], expected[mask])


@torch.no_grad()
def random_model(family: str, seed: int) -> Any:
    """Make a model of a random configuration; some T5s have an output matrix of their own."""
    config = random_config(family, seed)
    theirs = CLASSES[family][1](config)
    kept = {name: weight.clone() for name, weight in theirs.named_parameters() if "embed_positions" in name}
    if family in {"t5", "mt5"} and seed % 2:
        theirs.lm_head.weight = torch.nn.Parameter(theirs.lm_head.weight.clone())
    theirs = loud_weights(theirs, seed)
    for name, weight in theirs.named_parameters():
        if name.endswith(".q.weight"):  # T5 scales no scores, but begins with small queries
            weight.mul_(config.d_kv**-0.5)
    if family in {"marian", "pegasus"}:  # waves are computed
        for name, weight in kept.items():
            theirs.get_parameter(name).copy_(weight)
    if hasattr(theirs, "final_logits_bias"):
        theirs.final_logits_bias.normal_(generator=torch.Generator().manual_seed(seed))
    return theirs


@torch.no_grad()
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", CLASSES)
def test_logits_and_hidden_states_are_those_of_transformers(family: str, seed: int, tmp_path: Path) -> None:
    theirs = random_model(family, seed)
    ours = imported(theirs, tmp_path)
    assert isinstance(ours, EncoderDecoder)
    generator, vocab_size = torch.Generator().manual_seed(seed), theirs.config.vocab_size
    lengths = torch.tensor([SOURCE, 1, 17])
    mask = (torch.arange(SOURCE) < lengths[:, None]).long()
    source = torch.randint(3, 60, (3, SOURCE), generator=generator).where(mask.bool(), theirs.config.pad_token_id)
    target = torch.randint(3, min(60, vocab_size), (3, TARGET), generator=generator)
    expected = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target, output_hidden_states=True)

    assert_equal(ours(source, mask, target), expected.logits)
    real = mask.bool()
    assert_equal(ours.encode(source, mask)[real], expected.encoder_last_hidden_state[real])
    if family in {"t5", "mt5"}:
        assert ours.config.head.tied == (seed % 2 == 0)


@torch.no_grad()
def test_barts_labels_are_those_of_transformers(tmp_path: Path) -> None:
    config = random_config("bart", 0)
    config.id2label = {0: "contradiction", 1: "neutral", 2: "entailment"}
    theirs = loud_weights(transformers.BartForSequenceClassification(config))
    ours = imported(theirs, tmp_path)
    assert isinstance(ours, EncoderDecoderReader)
    lengths = torch.tensor([SOURCE, 1, 17])
    mask = (torch.arange(SOURCE) < lengths[:, None]).long()
    ids = torch.randint(3, 60, (3, SOURCE), generator=torch.Generator().manual_seed(0)).where(mask.bool(), 1)
    ids[torch.arange(3), lengths - 1] = 2  # the end

    assert_equal(ours(ids, mask), theirs(input_ids=ids, attention_mask=mask).logits)


def test_a_word_embedding_that_is_stored_several_times_must_be_the_same() -> None:
    theirs = transformers.BartForConditionalGeneration(random_config("bart", 0))
    config = {**theirs.config.to_dict(), "architectures": ["BartForConditionalGeneration"]}
    tensors, name = theirs.state_dict(), "model.encoder.embed_tokens.weight"

    with pytest.raises(CheckpointError, match=r"differs from another tensor that is also embeddings\.words\.weight"):
        convert(FAMILIES["bart"], config, {**tensors, name: tensors[name] + 1})


def test_an_outputs_bias_that_a_file_lacks_is_zero(tmp_path: Path) -> None:
    theirs = transformers.BartModel(random_config("bart", 1))  # as bart-base is published
    ours = imported(theirs, tmp_path)

    assert isinstance(ours, EncoderDecoder)
    assert ours.head.bias is not None and not ours.head.bias.any()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_is_read(name: str) -> None:
    found = FAMILIES[PUBLISHED[name]["model_type"]].to_config(PUBLISHED[name])

    assert found == replace(SIZES[name], head=replace(SIZES[name].head, tied=True))  # until the tensors say otherwise


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("opus-mt", {"decoder_attention_heads": 4}, "decoder_attention_heads is 4; only 8 is supported"),
        ("bart-base", {"decoder_ffn_dim": 48}, "decoder_ffn_dim is 48; only 3072 is supported"),
        ("opus-mt", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False; only"),
        ("opus-mt", {"decoder_vocab_size": 98}, "decoder_vocab_size is 98; only 58101 is supported"),
        ("m2m100-418m", {"activation_function": "mish"}, "the activation 'mish' is not supported"),
        ("mbart-large-50", {"tie_word_embeddings": False}, "tie_word_embeddings is False; only True is supported"),
        (
            "bart-large",
            {"architectures": ["BartForSequenceClassification"], "decoder_start_token_id": 0},
            "decoder_start_token_id is 0; only 2 is supported",
        ),
        ("t5-small", {"feed_forward_proj": "gated-mish"}, "the activation 'mish' is not supported"),
        ("t5-small", {"is_decoder": True}, "is_decoder is True; this field is not known"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name_and_value(name: str, changes: dict[str, Any], words: str) -> None:
    config = {**PUBLISHED[name], **changes}
    with pytest.raises(CheckpointError) as error:
        FAMILIES[config["model_type"]].to_config(config)
    assert words in str(error.value)
