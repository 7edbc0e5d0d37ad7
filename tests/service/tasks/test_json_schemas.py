from __future__ import annotations

from typing import Any

import pytest

from service.tasks.json_schemas import as_meant

DOG = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
CLOSED = {**DOG, "additionalProperties": False}


def test_objects_have_the_properties_that_are_described_and_no_others() -> None:
    schema = {
        "$defs": {"dog": DOG},
        "type": "object",
        "properties": {"dogs": {"type": "array", "items": DOG}, "properties": {"anyOf": [DOG, {"type": "null"}]}},
    }

    assert as_meant(schema) == {
        "$defs": {"dog": CLOSED},
        "type": "object",
        "properties": {
            "dogs": {"type": "array", "items": CLOSED},
            "properties": {"anyOf": [CLOSED, {"type": "null"}]},
        },
        "additionalProperties": False,
    }


def test_what_has_properties_is_an_object() -> None:
    assert as_meant({"properties": {"a": {"type": "integer"}}}) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        CLOSED,
        {**DOG, "additionalProperties": True},
        {**DOG, "additionalProperties": {"type": "integer"}},
        {**DOG, "required": ["name", "age"]},
        {**DOG, "minProperties": 1},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"allOf": [DOG, {"type": "object", "properties": {"age": {"type": "integer"}}}]},
        {**DOG, "anyOf": [{"required": ["age"], "properties": {"age": {"type": "integer"}}}, {"maxProperties": 1}]},
        {"$ref": "#/$defs/dog", "allOf": [DOG]},
        {"anyOf": [DOG], "oneOf": [{"type": "object", "properties": {"age": {"type": "integer"}}}]},
        {"type": "object", "required": ["name"], "anyOf": [{"properties": {"name": {"type": "string"}}}]},
        {"patternProperties": {"^b": {"type": "integer"}}, "anyOf": [DOG]},
        {"additionalProperties": {"type": "integer"}, "anyOf": [DOG]},
        {"properties": {"a": {"type": "integer"}}, "enum": [1, 2]},
        {"properties": {"a": {"type": "integer"}}, "items": {"type": "integer"}},
        {"const": DOG},
        {"enum": [{"properties": {"a": 1}}]},
    ],
)
def test_what_says_so_itself_needs_others_or_is_put_together_stays(schema: dict[str, Any]) -> None:
    assert as_meant(schema) == schema
