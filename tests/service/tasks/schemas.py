"""JSON schemas of many kinds, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c", "name", "x y", 'q"', "é", "\\", "/"])
VALUES = st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=5) | st.sampled_from([0.5, -2.25, 1e6])


@st.composite
def bounds(draw: st.DrawFn, low: str, high: str, least: int, most: int) -> Schema:
    """Return none, one or both of two bounds that leave something."""
    first, second = sorted((draw(st.integers(least, most)), draw(st.integers(least, most))))
    chosen = {}
    if draw(st.booleans()):
        chosen[low] = first
    if draw(st.booleans()):
        chosen[high] = second
    return chosen


def strings() -> st.SearchStrategy[Schema]:
    lengths = bounds("minLength", "maxLength", 0, 8)
    patterns = st.sampled_from(["^[a-c]{2,4}$", "^\\d+$", "x", "^(foo|bar)+$", "\\.$", '^[^"\\\\]*$', "^.{3}$"])
    formats = st.sampled_from(["date", "time", "date-time", "uuid", "ipv4", "email"])
    return st.builds(
        lambda own: {"type": "string", **own},
        lengths | st.fixed_dictionaries({"pattern": patterns}) | (st.fixed_dictionaries({"format": formats})),
    )


def numbers() -> st.SearchStrategy[Schema]:
    kinds = st.sampled_from(["integer", "number"])
    inclusive, exclusive = (
        bounds("minimum", "maximum", -500, 500),
        bounds("exclusiveMinimum", "exclusiveMaximum", -500, 500).filter(
            lambda own: len(own) < 2 or own["exclusiveMinimum"] + 1 < own["exclusiveMaximum"]
        ),
    )
    multiples = st.sampled_from([{"multipleOf": 1}, {"multipleOf": 3}, {"multipleOf": 0.5}])
    return st.builds(lambda kind, own: {"type": kind, **own}, kinds, inclusive | exclusive | multiples)


def simple() -> st.SearchStrategy[Schema]:
    return st.one_of(
        strings(),
        numbers(),
        st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["integer", "null"]}]),
        st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=4)),
        st.builds(lambda value: {"const": value}, VALUES),
    )


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    schema: Schema = {"type": "object", "properties": properties}
    if properties:
        schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    extra = draw(st.sampled_from(["none", "any", "typed"]))
    if extra != "any":
        schema["additionalProperties"] = False if extra == "none" else draw(inner)
    if draw(st.booleans()):
        schema |= draw(bounds("minProperties", "maxProperties", 0, 3))
    if not properties and draw(st.booleans()):
        schema["patternProperties"] = {"^a": draw(inner)}
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    schema: Schema = {"type": "array", "items": draw(inner), **draw(bounds("minItems", "maxItems", 0, 3))}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
    return schema


def nested(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        objects(inner),
        arrays(inner),
        st.builds(lambda parts: {"anyOf": parts}, several),
        st.builds(lambda parts: {"allOf": parts}, several),
        st.builds(lambda parts: {"oneOf": parts}, several),
    )


@st.composite
def referring(draw: st.DrawFn) -> Schema:
    """Return a schema of a tree: it refers to itself."""
    leaf = draw(simple())
    node = {"type": "object", "properties": {"leaf": leaf, "next": {"$ref": "#/$defs/node"}}, "required": ["leaf"]}
    return {"$defs": {"node": {**node, "additionalProperties": False}}, "$ref": "#/$defs/node"}


def schemas() -> st.SearchStrategy[Schema]:
    """Return schemas of all kinds; some contradict themselves, and some say what is not supported."""
    return st.recursive(simple(), nested, max_leaves=5) | referring()
