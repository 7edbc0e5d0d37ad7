from __future__ import annotations

from typing import Any

import pytest
import transformers

from model.checkpoints.errors import CheckpointError
from model.checkpoints.fields import Fields, field_names
from model.checkpoints.read import FAMILIES
from model.checkpoints.t5 import UNSTATED

DEFAULTS = {"width": 8, "depth": 2, "scaled": True}


def test_a_field_that_is_left_out_has_its_default() -> None:
    fields = Fields({"width": 4}, DEFAULTS)

    assert (fields["width"], fields["depth"]) == (4, 2)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"scaled": False}, "scaled is False; only True is supported"),
        ({"soft_cap": 30.0}, "soft_cap is 30.0; this field is not known"),
        ({"first_expert": 0}, "first_expert is 0; this field is not known"),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "its weights are quantized (gptq)",
        ),
    ],
)
def test_a_field_that_nobody_read_is_refused_by_name_and_value(config: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json") as error:
        Fields(config, DEFAULTS).refuse_the_rest(frozenset())
    assert words in str(error.value)


@pytest.mark.parametrize(
    "config", [{"scaled": True}, {"soft_cap": None}, {"soft": False}, {"soft": []}, {"use_cache": True}, {"mine": 3}]
)
def test_a_field_that_asks_for_nothing_is_not_refused(config: dict[str, Any]) -> None:
    Fields(config, DEFAULTS).refuse_the_rest(frozenset({"mine"}))


def test_what_is_read_is_not_refused() -> None:
    fields = Fields({"scaled": False}, DEFAULTS)
    assert not fields["scaled"]
    fields.refuse_the_rest(frozenset())


# Of families whose defaults are refused.
SUPPORTED: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {"layer_types": ["attention"] * 32, "num_local_experts": 0, "position_embedding_type": "rope"},
}


# What a file must state, and what other fields follow from.
SIZES = field_names(
    "architectures id2label vocab_size hidden_size intermediate_size shared_intermediate_size max_position_embeddings"
    " head_dim num_hidden_layers num_attention_heads num_key_value_heads num_heads num_layers image_size patch_size"
    " n_embd n_layer n_head n_positions"
)


def class_of(family: str) -> list[str]:
    return [f"AnyFor{'Image' if family in {'vit', 'deit'} else 'Sequence'}Classification"]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_file_leaves_out_is_what_its_class_has(family: str) -> None:
    theirs = transformers.AutoConfig.for_model(family)
    # None stands for another field, or for what is computed; a class may compute a value of its own default, too.
    ours = {name: value for name, value in FAMILIES[family].defaults.items() if value not in (None, UNSTATED)}
    shared = {name: value for name, value in ours.items() if hasattr(theirs, name)}

    assert shared
    for name, value in shared.items():
        assert value in (getattr(theirs, name), getattr(type(theirs), name, None)), name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_of_sizes_alone_is_read_as_the_whole(family: str) -> None:
    supported = SUPPORTED.get(family, {})
    whole = transformers.AutoConfig.for_model(family, architectures=class_of(family), **supported).to_dict()
    sizes = {name: value for name, value in whole.items() if name in SIZES}

    assert FAMILIES[family].to_config({**sizes, **supported}) == FAMILIES[family].to_config(whole)


@pytest.mark.parametrize(
    "config",
    [
        *({"cls_token_id": 101}, {"mask_token_id": 103}, {"unk_token_id": 100}, {"loss_type": "ForCausalLM"}),
        *({"model_max_length": 512}, {"max_sequence_length": 2048}),
        {"custom_pipelines": {"text-generation": {"impl": "its.Code"}}},
    ],
)
def test_what_no_model_reads_is_passed_over_in_every_family(config: dict[str, Any]) -> None:
    Fields(config, DEFAULTS).refuse_the_rest(frozenset())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_refuses_a_field_that_it_does_not_know(family: str) -> None:
    with pytest.raises(CheckpointError, match=r"rope_twist is 3; this field is not known"):
        config = transformers.AutoConfig.for_model(family, architectures=class_of(family), **SUPPORTED.get(family, {}))
        FAMILIES[family].to_config({**config.to_dict(), "rope_twist": 3})
