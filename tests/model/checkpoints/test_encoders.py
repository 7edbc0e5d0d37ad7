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
from model.checkpoints.errors import CheckpointError
from model.checkpoints.heads import VECTORS
from model.checkpoints.read import family_of
from tests.model.checkpoints.parity import SEEDS, assert_equal, converted_by_family, imported, loud_weights
from tests.model.checkpoints.published_encoders import PUBLISHED

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
    "albert": "Albert",
    "gte": "Gte",
    "eurobert": "EuroBert",
}
WITHOUT_ANSWERS = {"nomic_bert", "gte", "eurobert"}  # in transformers
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
    if family == "albert":
        sizes |= {"embedding_size": draw.choice([heads * width, 5, 12])}
    if family == "electra":
        sizes |= {"embedding_size": draw.choice([heads * width, 5, 12]), "tie_word_embeddings": True}
    if family == "nomic_bert":
        wave = {"rope_type": "default", "rope_theta": draw.choice([50.0, 1000.0])}
        sizes |= {"rope_parameters": draw.choice([None, wave]), "head_dim": draw.choice([None, 8])}
    if family == "eurobert":
        del sizes["type_vocab_size"]
        sizes |= {
            "rms_norm_eps": sizes.pop("layer_norm_eps"),
            "classifier_pooling": draw.choice(["bos", "mean", "late"]),
        }
        sizes |= {name: draw.choice([True, False]) for name in ("attention_bias", "mlp_bias")}
        sizes |= {"num_key_value_heads": draw.choice([None, 1]), "head_dim": draw.choice([None, 8])}
    if family == "gte":
        linear = {"rope_type": "linear", "factor": 1.5, "rope_theta": 50.0}
        sizes |= {"rope_parameters": draw.choice([None, linear]), "type_vocab_size": draw.choice([0, 1, 2])}
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
    of_words = (getattr(getattr(theirs, "cls", theirs), "predictions", None), getattr(theirs, "lm_head", None))
    for stored in filter(None, of_words):
        if hasattr(stored, "bias") and hasattr(stored, "decoder"):
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
    ("family", "head"),
    [pair for pair in product(NAMES, HEADS) if pair[0] not in WITHOUT_ANSWERS or pair[1] != "QuestionAnswering"],
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


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "padding"),
    [
        *product(("roberta", "xlm-roberta", "camembert"), (0, 5)),
        *(("mpnet", padding) for padding in (0, 5, None)),  # whose positions count from 1 in any case
    ],
)
def test_positions_count_from_behind_the_padding(family: str, padding: int | None, tmp_path: Path) -> None:
    sizes = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 40}
    config = getattr(transformers, f"{NAMES[family]}Config")(**sizes, pad_token_id=padding)
    theirs = loud_weights(getattr(transformers, f"{NAMES[family]}ForTokenClassification")(config))
    ours = imported(theirs, tmp_path)
    longest = 38 if family == "mpnet" else 39 - (padding or 0)
    mask = torch.arange(longest) < torch.tensor([[longest], [11]])
    ids = torch.randint(6, 61, mask.shape, generator=torch.Generator().manual_seed(0)).where(mask, padding or 1)

    assert ours.config.max_positions == longest
    assert_equal(ours(ids, mask)[mask], theirs(ids, mask.long()).logits[mask])


@pytest.mark.parametrize("padding", [None, -1, "<pad>"])
def test_positions_that_count_from_no_id_are_refused(padding: Any) -> None:
    config = {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "pad_token_id": padding}
    family = family_of(config)
    assert family is not None
    with pytest.raises(CheckpointError, match=f"pad_token_id is {padding!r}; it must be an id, which positions count"):
        family.to_config(config)


# Where the code that a family was published with has other names, and which maps are one there.
OLD_NAMES = {
    "nomic_bert": {
        "embeddings.LayerNorm.": "emb_ln.",
        "layers.": "encoder.layers.",
        "self_attn.o_proj.": "attn.out_proj.",
        "up_proj.": "fc11.",
        "gate_proj.": "fc12.",
        "down_proj.": "fc2.",
        "post_attention_layernorm.": "norm1.",
        "post_mlp_layernorm.": "norm2.",
    },
    "gte": {
        "layers.": "encoder.layer.",
        "self_attn.": "attention.",
        "post_attention_layernorm.": "attn_ln.",
        "post_mlp_layernorm.": "mlp_ln.",
    },
}
JOINED = {
    "nomic_bert": {"encoder.layers.{}.attn.Wqkv": [f"encoder.layers.{{}}.self_attn.{part}_proj" for part in "qkv"]},
    "gte": {
        "encoder.layer.{}.attention.qkv_proj": [f"encoder.layer.{{}}.attention.{part}_proj" for part in "qkv"],
        "encoder.layer.{}.mlp.up_gate_proj": [f"encoder.layer.{{}}.mlp.{part}_proj" for part in ("up", "gate")],
    },
}


def as_published(family: str, tensors: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Return tensors with the names that they were published with."""
    renamed = {}
    for name, tensor in tensors.items():
        for pair in OLD_NAMES[family].items():
            name = name.replace(*pair)  # noqa: PLW2901 — one name after the other
        renamed[name] = tensor
    for (one, parts), layer, kind in product(JOINED[family].items(), range(layers), ("weight", "bias")):
        found = [renamed.pop(f"{part}.{kind}".format(layer), None) for part in parts]
        there = [part for part in found if part is not None]
        if there:
            renamed[f"{one}.{kind}".format(layer)] = torch.cat(there)
    return renamed


@pytest.mark.parametrize("prefix", ["", "new."])
@pytest.mark.parametrize("family", OLD_NAMES)
def test_tensors_are_read_by_the_names_that_they_were_published_with(family: str, prefix: str) -> None:
    theirs = loud_weights(getattr(transformers, f"{NAMES[family]}Model")(random_config(family, random.Random(0))))
    published = as_published(family, theirs.state_dict(), theirs.config.num_hidden_layers)
    tensors = {f"{prefix if family == 'gte' else ''}{name}": tensor for name, tensor in published.items()}
    config = {**theirs.config.to_dict(), "architectures": [VECTORS]}
    ours, again = converted_by_family(config, theirs.state_dict()), converted_by_family(config, tensors)

    assert len(tensors) < len(theirs.state_dict()) and not tensors.keys() & {"layers.0.self_attn.q_proj.weight"}
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in ours.state_dict().items())


def jina_by_hand(tensors: dict[str, Tensor], ids: Tensor, segments: Tensor, heads: int, layers: int) -> Tensor:
    """Return the last hidden states of one text's ids (1, T), by the formulas of its paper: transformers has it not."""
    functional = torch.nn.functional

    def linear(x: Tensor, name: str) -> Tensor:
        return functional.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], tensors[f"{name}.weight"], tensors[f"{name}.bias"], 1e-12)

    places = torch.arange(ids.shape[1])
    slopes = torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)])  # of a power of two
    bias = -slopes[:, None, None] * (places[:, None] - places).abs()
    words, kinds = (tensors[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "token_type"))
    x = norm(words[ids] + kinds[segments], "embeddings.LayerNorm")
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            linear(x, f"{name}.attention.self.{part}").unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 + bias).softmax(-1)
        attended = linear((weights @ value).transpose(1, 2).flatten(2), f"{name}.attention.output.dense")
        x = norm(x + attended, f"{name}.attention.output.LayerNorm")
        gate, up = linear(x, f"{name}.mlp.gated_layers").chunk(2, dim=-1)
        x = norm(x + linear(functional.gelu(gate) * up, f"{name}.mlp.wo"), f"{name}.mlp.layernorm")
    return x


@torch.no_grad()
def test_a_jina_embeddings_2_is_read_as_it_was_published() -> None:
    sizes = {"vocab_size": 61, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    sizes |= {"intermediate_size": 48, "max_position_embeddings": 64}
    bert = loud_weights(transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False))
    kept = {name: part for name, part in bert.state_dict().items() if "embed" in name or "attention" in name}
    draw = torch.Generator().manual_seed(0)
    shapes = {"gated_layers.weight": (96, 32), "wo.weight": (32, 48), "wo.bias": (32,)}
    shapes |= {"layernorm.weight": (32,), "layernorm.bias": (32,)}
    tensors = {
        **{name: part for name, part in kept.items() if "position" not in name},
        **{
            f"encoder.layer.{layer}.mlp.{name}": torch.randn(shape, generator=draw) * 0.3
            for layer, (name, shape) in product(range(2), shapes.items())
        },
    }
    config = {**PUBLISHED["jina-embeddings-v2-base-en"], **sizes}
    ours = converted_by_family(config, tensors)
    assert isinstance(ours, TextEncoder)
    ids, segments = torch.arange(4, 44)[None], torch.tensor([[0] * 30 + [1] * 10])

    expected = jina_by_hand(tensors, ids, segments, heads=4, layers=2)
    assert_equal(ours.encode(ids, torch.ones_like(ids), segments), expected)
