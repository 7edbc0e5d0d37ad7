"""What is wrong with settings, told by their fields and without any value, as that may be a secret."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from model.package import yaml_text


class SettingsError(Exception):
    """A setting has a value that is not allowed; the message names it."""


def parse_yaml(path: Path, content: bytes) -> Any:
    """Return what a YAML file says; raises `SettingsError`, which shows no value of it, as it may be a secret."""
    try:
        return yaml_text.parse_yaml(content)
    except yaml_text.NotYaml as error:
        raise SettingsError(f"{path}: {error}") from None


RENAMED = {"replica": "replica_group"}  # fields by what they were called before


def problems(error: ValidationError, known: Iterable[str] = ()) -> str:
    """Return all that is wrong, each by its field; values are left out, as they may be secrets.

    `known`: names of fields, one of which a field that is not known may be a slip of; it may stand in a wrong place.
    """
    return "; ".join(_problem(each, list(known)) for each in error.errors())


def _problem(found: ErrorDetails, known: Sequence[str]) -> str:
    field, message = ".".join(map(str, found["loc"])), found["msg"].removeprefix("Value error, ")
    if found["type"] == "model_type":
        message = "should have fields of its own, not one value"
    if found["type"] == "extra_forbidden":
        name = str(found["loc"][-1])
        near = [RENAMED[name]] if name in RENAMED else difflib.get_close_matches(name, known, n=1)
        message = f"not known; did you mean {near[0]}?" if near else "not known"
        if name in known:
            message = "not a field here, but in another place of such a file; service/settings.md lists them all"
    return ": ".join(filter(None, (field, message)))
