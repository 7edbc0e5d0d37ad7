"""The functions that a request offers the model, and those that it may call."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.errors import InvalidRequest
from service.schemas import GenerateRequest, NamedTool
from service.schemas.grammar import MAX_CHARACTERS

NAME_CHARACTER = re.compile(r"[A-Za-z0-9_.-]")
MAX_NAME = 64  # characters
FUNCTION_NAME = re.compile(f"{NAME_CHARACTER.pattern}{{1,{MAX_NAME}}}")
# What a function's parameters may say where there are none.
OF_NONE = frozenset({"type", "properties", "required", "title", "description", "$schema"})
NO_PARAMETERS: dict[str, Any] = {"properties": {}}


@dataclass(frozen=True)
class Function:
    """A function's name, and its parameters as a JSON schema."""

    name: str
    parameters: dict[str, Any]
    is_strict: bool  # otherwise keywords of its parameters that no grammar knows are passed over


def callable_functions(request: GenerateRequest) -> list[Function]:
    """Return the functions of which the model may call some; raises `InvalidRequest`."""
    functions = _functions_of(request.tools or [])
    choice = request.tool_choice
    if not functions:
        raise InvalidRequest("tool_choice: there is nothing to choose from; send tools, too", "tool_choice")
    if not isinstance(choice, NamedTool):
        return functions
    chosen = [function for function in functions if function.name == choice.name]
    if not chosen:
        raise InvalidRequest(f"tool_choice: {choice.name[:MAX_NAME]!r} is none of the tools", "tool_choice")
    return chosen


def _functions_of(tools: Sequence[dict[str, Any]]) -> list[Function]:
    functions = [_function_of(tool, f"tools.{place}") for place, tool in enumerate(tools)]
    characters = sum(len(json.dumps(function.parameters)) for function in functions)
    if characters > MAX_CHARACTERS:
        raise InvalidRequest(
            f"tools: their parameters have {characters} characters; the limit is {MAX_CHARACTERS}", "tools"
        )
    names = [function.name for function in functions]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InvalidRequest(f"tools.{place}.function.name: another tool is called {name!r}, too", "tools")
    return functions


def _function_of(tool: dict[str, Any], place: str) -> Function:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise InvalidRequest(f"{place}: a tool should be {{type: function, function: {{name, parameters}}}}", "tools")
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{place}.function.name should have up to {MAX_NAME} letters, digits, underscores, hyphens and dots",
            "tools",
        )
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidRequest(f"{place}.function.parameters should be a JSON schema, an object", "tools")
    return Function(name, _as_object(parameters or NO_PARAMETERS), function.get("strict") is True)


def _as_object(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as an object, which has none where none are described."""
    has_none = parameters.get("properties") == {} and not parameters.get("required") and OF_NONE.issuperset(parameters)
    return {**parameters, "type": "object", **({"additionalProperties": False} if has_none else {})}
