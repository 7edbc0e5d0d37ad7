"""What is wrong with settings, told by their fields and without any value, as that may be a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from model.package import yaml_text


class SettingsError(Exception):
    """A setting has a value that is not allowed; the message names it."""


def parse_yaml(path: Path, content: bytes) -> Any:
    """Return what a YAML file says; raises `SettingsError`, which shows no value of it, as it may be a secret."""
    try:
        return yaml_text.parse_yaml(content)
    except yaml_text.NotYaml as error:
        raise SettingsError(f"{path}: {error}") from None


def problems(error: ValidationError) -> str:
    """Return all that is wrong, each by its field; values are left out, as they may be secrets."""
    return "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in error.errors())
