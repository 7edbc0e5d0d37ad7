"""Encoders with all their heads against transformers, in torch."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from model.architectures import TextEncoder
from model.checkpoints.heads import VECTORS
from tests.model.checkpoints.parity import SEEDS, assert_equal, converted_by_family, imported, loud_weights

NAMES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "distilbert": "DistilBert",
    "modernbert": "ModernBert",
    "deberta-v2": "DebertaV2",
    "mpnet": "MPNet",
    "electra": "Electra",
    "nomic_bert": "NomicBert",
}
HEADS = ["SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"]
ACTIVATIONS = ["gelu", "gelu_new", "relu", "silu", "tanh", "quick_gelu", "gelu_pytorch_tanh", "gelu_fast"]
LENGTHS = (30, 11, 1)  # of a batch's rows


def random_config(family: str, draw: random.Random) -> Any:
    """Draw a tiny configuration; every switch of the family is drawn too."""
    heads, width, layers = draw.choice([1, 2, 3]), draw.choice([4, 6, 10, 16]), draw.choice([1, 2, 4])
    sizes: dict[str, Any] = {
        "vocab_size": draw.choice([61, 97, 104]),
        "max_position_embeddings": draw.choice([32, 40]),
        "num_labels": draw.choice([1, 2, 5]),
        "tie_word_embeddings": draw.choice([True, False]),
        "pad_token_id": 1,
    }
    d_ff, activation = draw.choice([22, 37, 48]), draw.choice(ACTIVATIONS)
    if family == "distilbert":
        sizes |= {"dim": heads * width, "n_heads": heads, "n_layers": layers, "hidden_dim": d_ff}
        sizes |= {"activation": activation, "sinusoidal_pos_embds": draw.choice([True, False])}
    else:
        sizes |= {"hidden_size": heads * width, "num_attention_heads": heads, "num_hidden_layers": layers}
        sizes |= {"intermediate_size": d_ff, "hidden_act": activation, "layer_norm_eps": draw.choice([1e-12, 1e-2])}
        sizes |= {"type_vocab_size": draw.choice([1, 2, 3])}
    if family == "modernbert":
        del sizes["type_vocab_size"]
        sizes |= {"norm_eps": sizes.pop("layer_norm_eps"), "hidden_activation": sizes.pop("hidden_act")}
        sizes |= {name: draw.choice([True, False]) for name in ("norm_bias", "attention_bias", "mlp_bias")}
        sizes |= {name: draw.choice([True, False]) for name in ("decoder_bias", "classifier_bias")}
        sizes |= {"classifier_pooling": draw.choice(["cls", "mean"]), "local_attention": draw.choice([4, 7, 20])}
        sizes |= {"classifier_activation": draw.choice(ACTIVATIONS), "bos_token_id": 0, "eos_token_id": 2}
        sizes |= {"global_rope_theta": draw.choice([100.0, 160000.0]), "local_rope_theta": draw.choice([50.0, 10000.0])}
        sizes |= {"global_attn_every_n_layers": draw.choice([1, 2, 3])}
        slow = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        waves = {"full_attention": {**slow, "rope_theta": 500.0, "original_max_position_embeddings": 16}}
        sizes |= {"rope_parameters": draw.choice([None, waves])}
    if family == "mpnet":
        del sizes["type_vocab_size"]
    if family == "electra":
        sizes |= {"embedding_size": draw.choice([heads * width, 5, 12]), "tie_word_embeddings": True}
    if family == "nomic_bert":
        wave = {"rope_type": "default", "rope_theta": draw.choice([50.0, 1000.0])}
        sizes |= {"rope_parameters": draw.choice([None, wave]), "head_dim": draw.choice([None, 8])}
    if family == "deberta-v2" and draw.random() < 0.1:
        sizes |= {"relative_attention": False, "tie_word_embeddings": True}
    elif family == "deberta-v2":
        sizes |= {"relative_attention": True, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
        sizes |= {"position_buckets": draw.choice([4, 8, 16]), "max_relative_positions": draw.choice([-1, 20])}
        sizes |= {"pos_att_type": draw.choice(["p2c|c2p", ["c2p", "p2c"]]), "legacy": draw.choice([True, False])}
        sizes |= {"position_biased_input": draw.choice([True, False]), "type_vocab_size": draw.choice([0, 2])}
        sizes |= {"pooler_hidden_act": draw.choice(ACTIVATIONS), "tie_word_embeddings": True}
    return getattr(transformers, f"{NAMES[family]}Config")(**sizes)


def random_model(family: str, head: str, seed: int) -> Any:
    """Make a model of a random configuration; a bias that is stored twice is one."""
    draw = random.Random(f"{family} {head} {seed}")
    config = random_config(family, draw)
    if head == "QuestionAnswering":
        config.num_labels = 2
    theirs = loud_weights(getattr(transformers, f"{NAMES[family]}For{head}")(config), seed)
    for stored in (getattr(getattr(theirs, "cls", None), "predictions", None), getattr(theirs, "lm_head", None)):
        if stored is not None:
            stored.bias = stored.decoder.bias
    return theirs


def batch(config: Any, seed: int) -> dict[str, Tensor]:
    """Return random ids with padding behind them, and segments where there are any."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(LENGTHS[0]) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(2, config.vocab_size, mask.shape, generator=generator).where(mask, config.pad_token_id)
    segments = getattr(config, "type_vocab_size", 0)
    kinds = torch.randint(0, max(1, segments), mask.shape, generator=generator)
    more = {"token_type_ids": kinds.where(mask, 0)} if segments else {}
    return {"input_ids": ids, "attention_mask": mask.long(), **more}


@torch.no_grad()
@pytest.mark.parametrize("seed", [*SEEDS[:3], *SEEDS[5:25]])
@pytest.mark.parametrize(
    ("family", "head"), [pair for pair in product(NAMES, HEADS) if pair != ("nomic_bert", "QuestionAnswering")]
)
def test_every_head_answers_as_in_transformers(family: str, head: str, seed: int, tmp_path: Path) -> None:
    theirs = random_model(family, head, seed)
    ours = imported(theirs, tmp_path)
    assert isinstance(ours, TextEncoder)
    inputs = batch(theirs.config, seed)
    ids, mask, segments = inputs["input_ids"], inputs["attention_mask"], inputs.get("token_type_ids")
    expected = theirs(**inputs, output_hidden_states=True)

    real = mask.bool()
    assert_equal(ours.encode(ids, mask, segments)[real], expected.hidden_states[-1][real])
    answer = ours(ids, mask, segments)
    if head == "SequenceClassification":
        assert_equal(answer, expected.logits)
    elif head == "QuestionAnswering":
        assert_equal(answer[real], torch.stack((expected.start_logits, expected.end_logits), dim=-1)[real])
    else:
        assert_equal(answer[real], expected.logits[real])


# Where the code that NomicBERT was published with has other names.
NOMIC_NAMES = {
    "embeddings.LayerNorm.": "emb_ln.",
    "layers.": "encoder.layers.",
    "self_attn.o_proj.": "attn.out_proj.",
    "up_proj.": "fc11.",
    "gate_proj.": "fc12.",
    "down_proj.": "fc2.",
    "post_attention_layernorm.": "norm1.",
    "post_mlp_layernorm.": "norm2.",
}


def test_a_nomic_bert_is_read_as_it_was_published() -> None:
    theirs = transformers.NomicBertModel(random_config("nomic_bert", random.Random(0)))
    tensors: dict[str, Tensor] = {}
    for name, tensor in loud_weights(theirs).state_dict().items():
        published = name
        for pair in NOMIC_NAMES.items():
            published = published.replace(*pair)
        tensors[published] = tensor
    for layer in range(theirs.config.num_hidden_layers):
        parts = [tensors.pop(f"encoder.layers.{layer}.self_attn.{part}_proj.weight") for part in "qkv"]
        tensors[f"encoder.layers.{layer}.attn.Wqkv.weight"] = torch.cat(parts)
    config = {**theirs.config.to_dict(), "architectures": [VECTORS]}
    ours, again = converted_by_family(config, theirs.state_dict()), converted_by_family(config, tensors)

    assert "emb_ln.weight" in tensors and "encoder.layers.0.attn.Wqkv.weight" in tensors
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in ours.state_dict().items())
