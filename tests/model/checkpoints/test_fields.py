from __future__ import annotations

from typing import Any

import pytest
import transformers

from model.checkpoints.errors import CheckpointError
from model.checkpoints.fields import Fields
from model.checkpoints.read import FAMILIES

DEFAULTS = {"width": 8, "depth": 2, "scaled": True}


def test_a_field_that_is_left_out_has_its_default() -> None:
    fields = Fields({"width": 4}, DEFAULTS)

    assert (fields["width"], fields["depth"]) == (4, 2)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"scaled": False}, "scaled is False; only True is supported"),
        ({"soft_cap": 30.0}, "soft_cap is 30.0; this field is not known"),
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
    "config", [{"scaled": True}, {"soft_cap": None}, {"soft": False}, {"use_cache": True}, {"mine": 3}]
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


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_refuses_a_field_that_it_does_not_know(family: str) -> None:
    with pytest.raises(CheckpointError, match=r"rope_twist is 3; this field is not known"):
        config = transformers.AutoConfig.for_model(
            family, architectures=["AnyForSequenceClassification"], **SUPPORTED.get(family, {})
        )
        FAMILIES[family].to_config({**config.to_dict(), "rope_twist": 3})
