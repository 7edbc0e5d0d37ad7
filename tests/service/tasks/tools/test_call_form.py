from __future__ import annotations

import json
from typing import Any

from service.json_values import MAX_VALUES
from service.tasks.tools.call_form import CallForm


def message(arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "write", "arguments": arguments}}]}


def test_long_arguments_are_values_as_short_ones_are() -> None:
    content = {"content": "x, [" * 50_000}
    (call,) = CallForm().given(message(json.dumps(content)))["tool_calls"]

    assert call["function"]["arguments"] == content


def test_arguments_of_more_values_than_a_body_may_have_stay_a_text() -> None:
    arguments = json.dumps({"content": [1] * (MAX_VALUES + 1)})
    (call,) = CallForm().given(message(arguments))["tool_calls"]

    assert call["function"]["arguments"] == arguments
