"""JSON schemas, as those mean them who ask for an output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# Where schemas stand in a schema: by names of any kind, in lists, alone.
BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")  # the last as in drafts before 2020-12
ALONE = ("items", "additionalItems", "additionalProperties")
# What says of an object that it is as another schema says, and what says so itself.
BY_OTHERS = frozenset(
    {"anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "not", "if", "then", "else", "dependentSchemas"}
)
OF_OBJECTS = frozenset({"properties", "patternProperties", "additionalProperties", "required"})
NO_OBJECTS = frozenset({"enum", "const", "items", "prefixItems"})  # what may say that it is something else


# What describes and asks for nothing, and the formats that do ask; others only describe, as `path` and `password`.
ANNOTATIONS = frozenset({"title", "description", "examples", "default", "$comment"})
FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "unknown"}
)


def as_meant(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose objects have the properties that it describes, and no others unless it says so.

    To the letter an object may have any others as well, so that a small model goes on with made-up ones until it is
    cut, and what has `properties` but no `type` may be a number. Where objects are put together of several schemas,
    each of which would exclude what the others describe, all stays as it is.
    """
    schema = _changed(schema, _without_annotations)
    return schema if any(map(_is_put_together, _parts(schema))) else _changed(schema, _closed)


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all within it."""
    if isinstance(schema, dict):
        yield schema
        for inner in _inner(schema):
            yield from _parts(inner)


def _inner(schema: dict[str, Any]) -> Iterator[Any]:
    for name in BY_NAME:
        if isinstance(named := schema.get(name), dict):
            yield from named.values()
    for name in LISTED:
        if isinstance(listed := schema.get(name), list):
            yield from listed
    for name in ALONE:
        yield schema.get(name)


def _is_put_together(schema: dict[str, Any]) -> bool:
    """Whether an object is described in several places, so that one knows not what another allows."""
    others = BY_OTHERS & schema.keys()
    parts = schema.get("allOf")
    is_of_several = len(others) > 1 or (isinstance(parts, list) and len(parts) > 1)
    return is_of_several or bool(others and OF_OBJECTS & schema.keys())


def _changed(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a schema in which it, and all within it, are changed."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    for name in BY_NAME:
        if isinstance(named := schema.get(name), dict):
            changed[name] = {each: _changed(inner, change) for each, inner in named.items()}
    for name in LISTED:
        if isinstance(listed := schema.get(name), list):
            changed[name] = [_changed(inner, change) for inner in listed]
    for name in ALONE:
        if isinstance(schema.get(name), dict):
            changed[name] = _changed(schema[name], change)
    return change(changed)


def _without_annotations(schema: dict[str, Any]) -> dict[str, Any]:
    has_format = str(schema.get("format")) in FORMATS
    return {
        name: value for name, value in schema.items() if name not in ANNOTATIONS and (name != "format" or has_format)
    }


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without properties that it does not describe."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not properties or NO_OBJECTS & schema.keys():
        return schema
    closed = {"type": "object", **schema}
    has_all = isinstance(required, list) and {each for each in required if isinstance(each, str)} <= set(properties)
    if has_all and schema.keys().isdisjoint(("minProperties", "unevaluatedProperties")):
        closed.setdefault("additionalProperties", False)
    return closed
