from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from model.architectures import DecoderLM, TextEncoder
from model.checked import ConfigError
from model.checkpoints.errors import CheckpointError
from model.checkpoints.files import read_config
from model.checkpoints.heads import VECTORS
from model.checkpoints.read import FAMILIES, family_of
from model.checkpoints.weights import open_weights
from model.layers.attention import FullAttention
from model.sizes import SIZES
from tests.model.checkpoints.parity import SEEDS, assert_equal, converted_by_family, imported, loud_weights
from tests.model.checkpoints.published import LLAMAS, PUBLISHED
from tests.model.checkpoints.served import assert_engine_agrees, exported

CLASSES: dict[str, tuple[Any, Any]] = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    "granite": (transformers.GraniteConfig, transformers.GraniteForCausalLM),
    "granitemoehybrid": (transformers.GraniteMoeHybridConfig, transformers.GraniteMoeHybridForCausalLM),
    "ernie4_5": (transformers.Ernie4_5Config, transformers.Ernie4_5ForCausalLM),
    "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM),
    "smollm3": (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM),
    "exaone4": (transformers.Exaone4Config, transformers.Exaone4ForCausalLM),
}
LENGTH = 24  # of the longer row
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def random_config(family: str, seed: int) -> Any:
    """Draw a tiny configuration; every switch of the family is drawn too."""
    draw = random.Random(f"{family} {seed}")
    kv_heads, width = draw.choice([1, 2, 3]), draw.choice([4, 6, 10, 16, 20, 24])
    heads = kv_heads * draw.choice([1, 2, 3])
    layers, theta = draw.choice([1, 2, 3, 7]), draw.choice([100.0, 10000.0, 500000.0])
    sizes: dict[str, Any] = {
        "vocab_size": draw.choice([61, 97, 104]),
        "hidden_size": heads * draw.choice([4, 7, 12]),
        "intermediate_size": draw.choice([22, 37, 48]),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": draw.choice([LENGTH, 40]),
        "rms_norm_eps": draw.choice([1e-6, 1e-5, 1e-2]),
        "tie_word_embeddings": draw.choice([True, False]),
        "head_dim": width,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    rope = {"rope_type": "default", "rope_theta": theta}
    slower = {"rope_type": "linear", "factor": 2.5}
    scaled = {**rope, **(slower, {**LLAMA3, "original_max_position_embeddings": 16})[seed % 2]}
    act = draw.choice(["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
    if family == "gemma3":
        sizes |= {"hidden_activation": act, "attention_bias": draw.choice([True, False])}
        sizes |= {"query_pre_attn_scalar": draw.choice([3, 16]), "sliding_window": draw.choice([1, 5, 30])}
        local = {"rope_type": "default", "rope_theta": draw.choice([50.0, 10000.0])}
        sizes |= {"rope_parameters": {"full_attention": draw.choice([rope, scaled]), "sliding_attention": local}}
        kinds = ["full_attention", "sliding_attention"]
        sizes |= {"layer_types": draw.choice([None, [draw.choice(kinds) for _ in range(layers)]])}
    else:
        sizes |= {"hidden_act": act}
        window = draw.choice([None, 1, 5, 30]) if family in {"mistral", "qwen2", "qwen3"} else None
        sizes |= {"rope_parameters": draw.choice([rope, scaled]) if window is None else rope}
        if family == "mistral":
            sizes |= {"sliding_window": window}
        if family in {"qwen2", "qwen3"}:
            sizes |= {"use_sliding_window": window is not None, "sliding_window": window}
            sizes |= {"max_window_layers": draw.randrange(layers)}
        if family in {"llama", "qwen3", "granite", "granitemoehybrid", "olmo2", "smollm3"}:
            sizes |= {"attention_bias": draw.choice([True, False])}
        if family in {"llama", "granite", "smollm3"}:
            sizes |= {"mlp_bias": draw.choice([True, False])}
        if family in {"granite", "granitemoehybrid"}:
            sizes |= {name: draw.choice([1.0, 0.3]) for name in ("attention_multiplier", "residual_multiplier")}
            sizes |= {name: draw.choice([1, 6.0]) for name in ("embedding_multiplier", "logits_scaling")}
        if family == "granitemoehybrid":
            sizes |= {"num_local_experts": 0, "layer_types": ["attention"] * layers, "position_embedding_type": "rope"}
            sizes |= {"shared_intermediate_size": sizes["intermediate_size"], "mamba_n_heads": 1}
        if family == "ernie4_5":
            sizes |= {"use_bias": draw.choice([True, False])}
        if family == "exaone4":
            kinds = [draw.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
            window = draw.choice([None, 1, 5, 30])
            sizes |= {"sliding_window": window, "layer_types": kinds if window else ["full_attention"] * layers}
            sizes |= {"rope_parameters": draw.choice([rope, scaled]) if window is None else rope}
        if family == "smollm3":
            sizes |= {"no_rope_layers": draw.choice([None, [draw.choice([0, 1]) for _ in range(layers)]])}
    return CLASSES[family][0](**sizes)


@pytest.mark.parametrize("name", LLAMAS)
def test_a_published_configuration_is_read(name: str) -> None:
    config = PUBLISHED[name]

    assert FAMILIES[config["model_type"]].to_config(config) == SIZES[name]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "qwen2.5-0.5b",
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "rope_type is 'yarn'; only default, linear",
        ),
        (
            "llama-3.2-1b",
            {"rope_scaling": {"rope_type": "linear", "factor": 4.0, "low_freq_factor": 1.0}},
            "rope_parameters.low_freq_factor is 1.0; rope_type linear has no such field",
        ),
        (
            "llama-3.2-1b",
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "rope_parameters.partial_rotary_factor is 0.5",
        ),
        ("llama-3.2-1b", {"rope_parameters": {"rope_theta": 300.0}}, "rope_parameters say otherwise"),
        (
            "qwen3-0.6b",
            {"rope_parameters": {"full_attention": {"rope_theta": 300.0}}},
            "this family has them for all layers together",
        ),
        ("gemma-3-270m", {"rope_parameters": {"rope_theta": 300.0}}, "this family has them for each type of layer"),
        ("gemma-3-270m", {"rope_scaling": {"type": "llama3", "factor": 8.0}}, "it must have a rope_type"),
        ("qwen3-0.6b", {"is_causal": False}, "is_causal is False; only True is supported"),
        ("gemma-3-270m", {"is_causal": False}, "is_causal is False; only True is supported"),
        ("llama-3.2-1b", {"rope_interleaved": True}, "rope_interleaved is True; this field is not known"),
        ("llama-3.2-1b", {"head_dim": 63}, "positions.kind is 'rotary'; it must be of an even width"),
        ("gemma-3-270m", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0; only None"),
        ("gemma-3-270m", {"use_bidirectional_attention": "vision"}, "use_bidirectional_attention is 'vision'; this"),
        ("gemma-3-270m", {"layer_types": ["linear_attention"] * 18}, "each layer must be one of full_attention"),
        ("qwen3-0.6b", {"rope_local_base_freq": 30.0}, "all layers of this family have the same waves"),
        (
            "qwen3-0.6b",
            {"use_sliding_window": True, "max_window_layers": 3, "sliding_window": 9, "rope_scaling": LLAMA3},
            "layers with a window cannot have RoPE scaling",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(name: str, changes: dict[str, Any], words: str) -> None:
    config = {**PUBLISHED[name], **changes}
    with pytest.raises((CheckpointError, ConfigError)) as error:
        FAMILIES[config["model_type"]].to_config(config)
    assert words in str(error.value)


def test_a_window_of_smollm3_is_refused() -> None:
    config = random_config("smollm3", 0).to_dict() | {"architectures": ["SmolLM3ForCausalLM"]}
    layers = config["num_hidden_layers"]
    FAMILIES["smollm3"].to_config({**config, "layer_types": ["full_attention"] * layers, "sliding_window": 6})

    with pytest.raises(CheckpointError, match=r"layer_types is .*; only full_attention is supported"):
        FAMILIES["smollm3"].to_config({**config, "layer_types": ["sliding_attention"] * layers, "sliding_window": 6})


@torch.no_grad()
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", CLASSES)
def test_logits_and_hidden_states_are_those_of_transformers(family: str, seed: int, tmp_path: Path) -> None:
    config = random_config(family, seed)
    theirs = loud_weights(CLASSES[family][1](config), seed)
    ours = imported(theirs, tmp_path)
    assert isinstance(ours, DecoderLM)
    ids = torch.randint(3, config.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    mask[1, 15:] = 0  # behind real tokens, as ours are padded

    hidden = ours.decoder(ours.embeddings(ids), FullAttention.within(ids))
    expected = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    for row, length in enumerate((LENGTH, 15)):
        assert_equal(hidden[row, :length], expected.hidden_states[-1][row, :length])
        assert_equal(ours.project(hidden)[row, :length], expected.logits[row, :length])


@torch.no_grad()
@pytest.mark.parametrize("seed", SEEDS)
def test_hidden_states_of_a_gemma_that_sees_both_ways_are_those_of_transformers(seed: int, tmp_path: Path) -> None:
    drawn = random_config("gemma3", seed).to_dict()
    window = random.Random(seed).choice([2, 10, 40])
    config = transformers.Gemma3TextConfig(
        **{**drawn, "use_bidirectional_attention": True, "sliding_window": window, "architectures": None}
    )
    theirs = loud_weights(transformers.Gemma3TextModel(config), seed)
    theirs.save_pretrained(tmp_path)
    written = {**read_config(tmp_path), "architectures": [VECTORS]}
    with open_weights(tmp_path) as tensors:
        ours = converted_by_family(written, tensors)
    assert isinstance(ours, TextEncoder)
    ids = torch.randint(3, config.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [15]])

    expected = theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    assert_equal(ours.encode(ids, mask)[mask], expected[mask])


# All that a decoder's graph can have: windows, two bases, waves of Llama 3, and heads whose halves must be padded.
SERVED: dict[str, dict[str, Any]] = {
    "gemma3": {
        **{"head_dim": 10, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 28, "sliding_window": 5},
        **{
            "query_pre_attn_scalar": 7,
            "layer_types": ["sliding_attention", "full_attention"],
            "eos_token_id": [2, 208],
        },
        **{"tie_word_embeddings": False},
        "rope_parameters": {
            "full_attention": {"rope_theta": 1e6, **LLAMA3, "original_max_position_embeddings": 16},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    },
    "granitemoehybrid": {
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 40, "mamba_n_heads": 1},
        **{"attention_multiplier": 0.2, "residual_multiplier": 0.4, "embedding_multiplier": 3.0},
        **{"logits_scaling": 2.0, "num_local_experts": 0, "layer_types": ["attention"] * 2, "eos_token_id": 2},
        **{"position_embedding_type": "rope", "shared_intermediate_size": 40},
    },
    "exaone4, windowless": {
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 40, "sliding_window": None},
        **{"layer_types": ["full_attention"] * 2, "eos_token_id": 2},
    },
    "exaone4": {
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 40, "sliding_window": 6},
        **{"layer_types": ["sliding_attention", "full_attention"], "eos_token_id": 2},
    },
    "olmo2": {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 60, "eos_token_id": 2},
    "ernie4_5": {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 40, "head_dim": 12},
    "qwen2": {
        **{"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 72, "tie_word_embeddings": False},
        **{"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1, "eos_token_id": 2},
    },
}


@pytest.mark.parametrize("family", SERVED)
async def test_the_service_generates_what_transformers_does(family: str, tmp_path: Path) -> None:
    common = {"vocab_size": 333, "intermediate_size": 40, "num_hidden_layers": 2, "max_position_embeddings": 90}
    configure, build = CLASSES[family.partition(",")[0]]
    theirs = loud_weights(build(configure(**{**common, **SERVED[family]}, bos_token_id=1, pad_token_id=0)), 0)
    package = exported(theirs, tmp_path)
    draw = random.Random(0)
    prompts = [[draw.randrange(3, 300) for _ in range(length)] for length in (5, 1, 37, 50, 12)]

    await assert_engine_agrees(package, theirs, prompts, tokens=20)


def test_a_gemma_that_sees_both_ways_only_makes_vectors() -> None:
    config = {**PUBLISHED["gemma-3-270m"], "use_bidirectional_attention": True}
    family = family_of(config)
    assert family is not None
    with pytest.raises(CheckpointError, match=r"Gemma3ForCausalLM.*; this family only makes vectors"):
        family.to_config(config)


def test_what_is_said_twice_may_be_said_in_two_ways() -> None:
    both = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "rope_scaling": {"type": "default"}}

    assert FAMILIES["qwen3"].to_config({**PUBLISHED["qwen3-0.6b"], **both}) == SIZES["qwen3-0.6b"]
