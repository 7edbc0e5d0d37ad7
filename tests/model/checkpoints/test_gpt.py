"""GPT-2, GPT-Neo, GPT-NeoX, OPT and BLOOM."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from model.architectures import DecoderLM
from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import FAMILIES
from model.layers.attention import FullAttention
from model.sizes import SIZES
from tests.model.checkpoints.parity import SEEDS, assert_equal, imported, loud_weights
from tests.model.checkpoints.published import PUBLISHED
from tests.model.checkpoints.served import assert_engine_agrees, exported

CLASSES: dict[str, tuple[Any, Any]] = {
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    "gpt_neo": (transformers.GPTNeoConfig, transformers.GPTNeoForCausalLM),
    "gpt_neox": (transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM),
    "opt": (transformers.OPTConfig, transformers.OPTForCausalLM),
    "bloom": (transformers.BloomConfig, transformers.BloomForCausalLM),
    "modernbert-decoder": (transformers.ModernBertDecoderConfig, transformers.ModernBertDecoderForCausalLM),
}
LENGTH = 24  # of the longer row
ACTIVATIONS = ["gelu_new", "gelu", "relu", "silu", "gelu_pytorch_tanh"]


def random_config(family: str, seed: int) -> Any:
    """Draw a tiny configuration; every switch of the family is drawn too."""
    draw = random.Random(f"{family} {seed}")
    heads, width, layers = draw.choice([1, 2, 3, 5]), draw.choice([1, 5, 8, 13, 16]), draw.choice([1, 2, 3])
    common: dict[str, Any] = {
        "vocab_size": draw.choice([61, 97, 104]),
        "layer_norm_epsilon": draw.choice([1e-6, 1e-5, 1e-2]),
        "activation_function": draw.choice(ACTIVATIONS),
        "tie_word_embeddings": draw.choice([True, False]),
        **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    }
    positions, inner = draw.choice([LENGTH, 40]), draw.choice([None, 22, 37])
    if family == "gpt2":
        sizes = {"n_embd": heads * width, "n_head": heads, "n_layer": layers, "n_positions": positions}
        return transformers.GPT2Config(**common, **sizes, n_inner=inner, scale_attn_weights=draw.choice([True, False]))
    if family == "gpt_neox":
        return _random_neox(common, heads, layers, inner or 40, draw)
    if family == "modernbert-decoder":
        return _random_modernbert(common, heads, layers, inner or 40, draw)
    if family == "bloom":
        del common["activation_function"]
        return transformers.BloomConfig(**common, hidden_size=heads * width, n_head=heads, n_layer=layers)
    if family == "opt":
        sizes = {"hidden_size": heads * width, "num_attention_heads": heads, "num_hidden_layers": layers}
        del common["layer_norm_epsilon"]
        more = {"ffn_dim": inner or 40, "enable_bias": draw.choice([True, False])}
        return transformers.OPTConfig(**common, **sizes, **more, max_position_embeddings=positions)
    kinds = draw.choice([["global", "local"], ["local"], ["global"], ["local", "global"]])
    return transformers.GPTNeoConfig(
        **common,
        hidden_size=heads * width,
        num_heads=heads,
        num_layers=layers * len(kinds),
        attention_types=[[kinds, layers]],
        window_size=draw.choice([1, 5, 30]),
        max_position_embeddings=positions,
        intermediate_size=inner,
    )


def _random_modernbert(common: dict[str, Any], heads: int, layers: int, inner: int, draw: random.Random) -> Any:
    names = ("norm_bias", "attention_bias", "mlp_bias", "decoder_bias", "classifier_bias")
    return transformers.ModernBertDecoderConfig(
        **{name: value for name, value in common.items() if name not in {"layer_norm_epsilon", "activation_function"}},
        **{"norm_eps": common["layer_norm_epsilon"], "hidden_activation": common["activation_function"]},
        **{"hidden_size": heads * draw.choice([4, 10, 16]), "num_attention_heads": heads, "num_hidden_layers": layers},
        **{name: draw.choice([True, False]) for name in names},
        intermediate_size=inner,
        classifier_activation=draw.choice(ACTIVATIONS),
        local_attention=draw.choice([2, 9, 60]),
        **draw.choice([{}, {"sliding_window": draw.choice([1, 3, 20])}]),  # which counts, if a file has both
        global_attn_every_n_layers=draw.choice([1, 2, 3]),
        max_position_embeddings=draw.choice([LENGTH, 40]),
    )


def _random_neox(common: dict[str, Any], heads: int, layers: int, inner: int, draw: random.Random) -> Any:
    width, share = draw.choice([(4, 1.0), (4, 0.5), (16, 0.25), (20, 0.5), (20, 0.2)])
    scaling: dict[str, Any] = draw.choice([{"rope_type": "default"}, {"rope_type": "linear", "factor": 2.5}])
    waves = {**scaling, "rope_theta": draw.choice([50.0, 10000.0]), "partial_rotary_factor": share}
    return transformers.GPTNeoXConfig(
        **{name: value for name, value in common.items() if name not in {"layer_norm_epsilon", "activation_function"}},
        **{"layer_norm_eps": common["layer_norm_epsilon"], "hidden_act": common["activation_function"]},
        **{"hidden_size": heads * width, "num_attention_heads": heads, "num_hidden_layers": layers},
        intermediate_size=inner,
        rope_parameters=waves,
        use_parallel_residual=draw.choice([True, False]),
        attention_bias=draw.choice([True, False]),
        max_position_embeddings=draw.choice([LENGTH, 40]),
    )


@torch.no_grad()
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", CLASSES)
def test_logits_and_hidden_states_are_those_of_transformers(family: str, seed: int, tmp_path: Path) -> None:
    config = random_config(family, seed)
    theirs = loud_weights(CLASSES[family][1](config), seed)
    ours = imported(theirs, tmp_path)
    assert isinstance(ours, DecoderLM)
    ids = torch.randint(3, config.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(seed))

    hidden = ours.decoder(ours.embeddings(ids), FullAttention.within(ids))
    expected = theirs(input_ids=ids, output_hidden_states=True)
    assert_equal(hidden, expected.hidden_states[-1])
    assert_equal(ours.project(hidden), expected.logits)


@pytest.mark.parametrize("name", ["gpt2", "distilgpt2", "tinystories-33m", "opt-125m", "pythia-160m", "bloom-560m"])
def test_a_published_configuration_is_read(name: str) -> None:
    config = PUBLISHED[name]

    assert FAMILIES[config["model_type"]].to_config(config) == SIZES[name]


def test_a_gpt2s_sizes_are_read_by_their_other_names() -> None:
    names = transformers.GPT2Config.attribute_map
    config = {**{name: PUBLISHED["gpt2"][old] for name, old in names.items()}, **PUBLISHED["gpt2"]}
    assert FAMILIES["gpt2"].to_config(config) == SIZES["gpt2"]

    alone = {name: value for name, value in config.items() if name not in names.values()}
    assert FAMILIES["gpt2"].to_config(alone) == SIZES["gpt2"]
    with pytest.raises(CheckpointError, match="n_embd is 768; hidden_size says otherwise"):
        FAMILIES["gpt2"].to_config({**config, "hidden_size": 512})
    with pytest.raises(CheckpointError, match=r"config\.json: there is neither n_layer nor num_hidden_layers"):
        FAMILIES["gpt2"].to_config({name: value for name, value in alone.items() if name != "num_hidden_layers"})


@pytest.mark.parametrize(
    ("rope", "turning"),
    [
        ({"rope_parameters": {"rope_theta": 1e4}, "rotary_pct": 0.5}, 32),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}, "rotary_pct": None}, 32),
        ({"rotary_pct": None}, 16),
        ({"rotary_pct": 1.0}, None),
    ],
)
def test_the_share_of_a_head_that_turns_is_read_where_it_is_stated(rope: dict[str, Any], turning: int | None) -> None:
    config = {name: value for name, value in {**PUBLISHED["pythia-160m"], **rope}.items() if value is not None}

    assert FAMILIES["gpt_neox"].to_config(config).positions.rotary_dim == turning


def test_what_published_files_say_without_effect_is_passed_over() -> None:
    beside = {"predict_special_tokens": True, "n_special": 0, "language": "english", "name": "GPT-2 medium"}
    config = {**PUBLISHED["gpt2"], **beside, "_attn_implementation": "sdpa", "unsloth_fixed": True, "is_causal": True}

    assert FAMILIES["gpt2"].to_config(config) == SIZES["gpt2"]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True; only False"),
        ("gpt2", {"is_causal": False}, "is_causal is False; only True"),
        ("opt-125m", {"do_layer_norm_before": False}, "do_layer_norm_before is False; only True"),
        ("bloom-560m", {"apply_residual_connection_post_layernorm": True}, "post_layernorm is True; only False"),
        ("bloom-560m", {"slow_but_exact": True, "pretraining_tp": 2}, "slow_but_exact is True; only false"),
        ("bloom-560m", {"hidden_size": 512}, "n_embed is 1024; hidden_size says otherwise"),
        ("bloom-560m", {"n_inner": 3000}, "n_inner is 3000; only None is supported"),
        ("opt-125m", {"word_embed_proj_dim": 512}, "word_embed_proj_dim is 512; only 768"),
        ("pythia-160m", {"rope_parameters": {"partial_rotary_factor": 1.0}, "rotary_pct": 0.5}, "say otherwise"),
        ("pythia-160m", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_type is 'yarn'; only default"),
        (
            "pythia-160m",
            {"rope_scaling": {"type": "default"}, "rope_parameters": {"rope_theta": 1e4}},
            "rope_parameters are there, too",
        ),
        ("pythia-160m", {"rotary_pct": 0.05}, "rotary_pct is 0.05; 3 of the 64 features of each head would turn"),
        ("tinystories-33m", {"is_causal": False}, "is_causal is False; only True"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True; only False"),
        ("tinystories-33m", {"attention_types": [[["global"], 3]]}, "it must name num_layers (4) layers"),
        ("tinystories-33m", {"attention_types": [[["sparse"], 4]]}, "each global or local"),
        ("tinystories-33m", {"attention_layers": ["local"] * 4}, "attention_types say otherwise"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(name: str, changes: dict[str, Any], words: str) -> None:
    config = {**PUBLISHED[name], **changes}
    with pytest.raises(CheckpointError) as error:
        FAMILIES[config["model_type"]].to_config(config)
    assert words in str(error.value)


# Windows; and heads of 20 features of which 6 turn, halves that must be padded apart.
SERVED: dict[str, dict[str, Any]] = {
    "gpt_neo": {
        **{"hidden_size": 39, "num_heads": 3, "num_layers": 2, "window_size": 7},
        **{"attention_types": [[["global", "local"], 1]], "tie_word_embeddings": False},
    },
    "gpt_neox": {
        **{"hidden_size": 60, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 48},
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.3},
    },
    "modernbert-decoder": {
        **{"hidden_size": 40, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 48},
        **{"local_attention": 14, "decoder_bias": True},
    },
    "bloom": {"hidden_size": 36, "n_head": 3, "n_layer": 2, "tie_word_embeddings": True},
    "opt": {"hidden_size": 36, "num_attention_heads": 3, "num_hidden_layers": 2, "ffn_dim": 48},
}


@pytest.mark.parametrize("family", SERVED)
async def test_the_service_generates_what_transformers_does(family: str, tmp_path: Path) -> None:
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    length = {"seq_length" if family == "bloom" else "max_position_embeddings": 90}
    config = CLASSES[family][0](vocab_size=333, **length, **ids, **SERVED[family])
    theirs = loud_weights(CLASSES[family][1](config))
    draw = random.Random(0)
    prompts = [[draw.randrange(3, 300) for _ in range(length)] for length in (5, 1, 37, 50, 12)]

    await assert_engine_agrees(exported(theirs, tmp_path), theirs, prompts, tokens=20)
