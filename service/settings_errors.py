"""What is wrong with settings, told by their fields and without any value, as that may be a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

# What PyYAML lets through where a date, a number or the like is none, as 2024-13-45.
_NOT_VALUES = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


class SettingsError(Exception):
    """A setting has a value that is not allowed; the message names it."""


def parse_yaml(path: Path, content: bytes) -> Any:
    """Return what a YAML file says; raises `SettingsError`, which shows no value of it, as it may be a secret."""
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "context", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{path}: not YAML{place}{f': {problem}' if problem else ''}") from None
    except RecursionError:
        raise SettingsError(f"{path}: not YAML: nested too deeply") from None
    except _NOT_VALUES:
        raise SettingsError(
            f"{path}: not YAML: a value is not what its form or tag says; put texts in quotes"
        ) from None


def problems(error: ValidationError) -> str:
    """Return all that is wrong, each by its field; values are left out, as they may be secrets."""
    return "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in error.errors())
