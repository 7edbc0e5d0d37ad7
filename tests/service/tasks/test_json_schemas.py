from __future__ import annotations

import json
from typing import Any

import pytest

from service.engine.grammar import Vocabulary
from service.tasks.grammars import OPTIONS
from service.tasks.json_schemas import FORMATS, as_meant

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


def test_items_may_be_listed_as_in_older_drafts() -> None:
    assert as_meant({"items": [DOG, True], "additionalItems": DOG}) == {
        "items": [CLOSED, True],
        "additionalItems": CLOSED,
    }
    assert as_meant({"items": True, "additionalItems": False}) == {"items": True, "additionalItems": False}


def test_formats_that_no_grammar_knows_ask_for_nothing() -> None:
    path, date = {"type": "string", "format": "path"}, {"type": "string", "format": "date"}
    anything: dict[str, Any] = {"type": "array", "items": {"anyOf": [path, date, {"format": ["date"]}]}}

    assert as_meant(anything) == {"type": "array", "items": {"anyOf": [{"type": "string"}, date, {}]}}
    assert as_meant({"properties": {"format": path}})["properties"] == {"format": {"type": "string"}}


def test_what_only_describes_is_left_out_where_it_is_no_property() -> None:
    described = {"title": "A", "description": "\x00", "default": 1, "examples": [1], "$comment": "c", "type": "integer"}
    schema = {"properties": {"title": described, "default": {"enum": ["title"]}}}

    assert as_meant(schema)["properties"] == {"title": {"type": "integer"}, "default": {"enum": ["title"]}}


def test_formats_that_are_kept_are_those_that_grammars_know() -> None:
    vocabulary = Vocabulary([bytes([byte]) for byte in range(256)] + [b"<end>"], 256, 257)
    for name in FORMATS:
        schema = {"type": "string", "format": name}
        assert as_meant(schema) == schema
        vocabulary.grammar(f"start: %json {json.dumps(schema)}{OPTIONS}")


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
