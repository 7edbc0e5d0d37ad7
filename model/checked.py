"""What groups of fields have in common that check themselves, and are written into files and read from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)  # else most of the time to read a manifest


class ConfigError(ValueError):
    """A field of a configuration has a value that is not allowed."""


class Checked:
    """A group of fields that names the one that is wrong, its value, and what is allowed."""

    GROUP: ClassVar[str] = ""  # before the fields' names in errors

    def _check(self, field: str, allowed: bool, what: str) -> None:
        if not allowed:
            raise ConfigError(f"{self.GROUP}{field} is {getattr(self, field)!r}; it must be {what}")

    def _check_at_least(self, least: int, *names: str) -> None:
        for field in names:
            self._check(field, getattr(self, field) >= least, f"at least {least}")

    def _check_ascending(self, field: str) -> None:
        layers = list(getattr(self, field))
        self._check(field, layers == sorted({*layers}), "numbers of layers, each once, in order")

    def _check_choices(self) -> None:
        for field, hint in _hints(type(self)).items():
            if get_origin(hint) is Literal:
                allowed = get_args(hint)
                self._check(field, getattr(self, field) in allowed, f"one of {', '.join(allowed)}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; raises `ConfigError` for a field that is unknown, missing, or wrong."""
        hints = {field.name: _hints(cls)[field.name] for field in fields(cls)}  # type: ignore[arg-type]  # all are
        if unknown := values.keys() - hints.keys():
            raise ConfigError(f"{cls.GROUP}{min(unknown)} is no field; one of {', '.join(hints)} is")
        needed = [field.name for field in fields(cls) if field.default is MISSING]  # type: ignore[arg-type]  # all are
        if missing := [name for name in needed if name not in values]:
            raise ConfigError(f"{cls.GROUP}{missing[0]} is missing")
        return cls(**{name: _read(f"{cls.GROUP}{name}", hints[name], value) for name, value in values.items()})


def _read(name: str, hint: Any, value: Any) -> Any:
    """Return a field's value as its type has it: groups from mappings, tuples from lists."""
    kinds = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    group = next((kind for kind in kinds if is_dataclass(kind)), None)
    if group is not None and isinstance(value, Mapping):
        return group.from_dict(value)  # type: ignore[union-attr]  # all groups have it
    value = tuple(value) if isinstance(value, list) else value
    if not any(_is_of(kind, value) for kind in kinds):
        allowed = " or ".join(_KINDS.get(get_origin(kind) or kind, "a group of fields") for kind in kinds)
        raise ConfigError(f"{name} is {value!r}; it must be {allowed}")
    return value


def _is_of(kind: Any, value: Any) -> bool:
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(type(item) is int for item in value)
    if kind is float:
        return type(value) in {int, float}
    return type(value) is (str if get_origin(kind) is Literal else kind)  # a bool is no number


_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "left out",
    Literal: "a name",
    tuple: "a list of whole numbers",
}


def flat(values: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Return the values of nested dictionaries by their path, `group.field`."""
    by_path: dict[str, Any] = {}
    for name, value in values.items():
        by_path |= flat(value, f"{group}{name}.") if isinstance(value, Mapping) else {f"{group}{name}": value}
    return by_path
