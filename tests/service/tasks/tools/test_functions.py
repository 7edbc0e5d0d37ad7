from __future__ import annotations

from typing import Any

import pytest

from service.errors import InvalidRequest
from service.schemas import GenerateRequest
from service.tasks.tools.functions import callable_functions


def tool(name: Any = "weather", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def functions(*tools: dict[str, Any], choice: Any = "auto") -> list[Any]:
    body = {"messages": [{"role": "user", "content": "Hello!"}], "tools": list(tools), "tool_choice": choice}
    return callable_functions(GenerateRequest.model_validate(body))


def test_a_function_without_parameters_takes_none() -> None:
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    given: dict[str, Any]
    for given in ({}, {"parameters": None}, {"parameters": {}}, {"parameters": {"properties": {}}}):
        assert [each.parameters for each in functions(tool(**given))] == [nothing]
    for more in ({"allOf": [{"required": ["a"]}]}, {"required": ["a"]}, {"minProperties": 1}, {"const": {"a": 1}}):
        described = {"properties": {}, **more}
        assert functions(tool(parameters=described))[0].parameters == {"type": "object", **described}
    assert functions(tool(parameters={"type": "object"}))[0].parameters == {"type": "object"}  # any


def test_a_choice_leaves_the_function_of_its_name() -> None:
    assert [each.name for each in functions(tool("a"), tool("b"), choice="required")] == ["a", "b"]
    assert [each.name for each in functions(tool("a"), tool("b"), choice={"name": "b"})] == ["b"]


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([], "nothing to choose from"),
        ([tool("other")], "'weather' is none of the tools"),
        ([tool(), {"type": "custom"}], "tools.1: a tool should be"),
        ([tool(), tool("")], "tools.1.function.name should have"),
        ([tool("a b")], "tools.0.function.name should have"),
        ([tool("a" * 65)], "64 letters"),
        ([tool(7)], "tools.0.function.name should have"),
        ([tool(parameters=[])], "tools.0.function.parameters should be a JSON schema"),
        ([tool(), tool("b", parameters={"enum": ["x" * 9] * 6000})], "their parameters have 78[0-9]{3} characters"),
        ([tool(), tool("a"), tool()], "tools.2.function.name: another tool is called 'weather'"),
    ],
)
def test_what_is_no_tool_is_refused_by_its_place(tools: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        functions(*tools, choice={"name": "weather"})
