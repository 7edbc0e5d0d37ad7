"""What a checkpoint's README.md says of it, in the front matter that the hub asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.package.yaml_text import NotYaml, parse_yaml

NOT_STATED = "not stated"


@dataclass(frozen=True)
class ModelCard:
    """The licence and the languages, as their authors wrote them."""

    licence: str = NOT_STATED
    languages: tuple[str, ...] = ()


def read_card(folder: Path) -> ModelCard:
    """Read a folder's README.md; one that is missing or says nothing is no error."""
    fields = _front_matter(folder / "README.md")
    # "other" has its true name in another field.
    licences = _texts(fields.get("license"))
    if licences == ["other"]:
        licences = _texts(fields.get("license_name")) or licences
    return ModelCard(", ".join(licences) or NOT_STATED, tuple(_texts(fields.get("language"))))


def _front_matter(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    if not text.startswith("---"):
        return {}
    try:
        fields = parse_yaml(text.split("\n---", 1)[0].removeprefix("---"))
    except NotYaml:  # a card is free text, and often broken
        return {}
    return fields if isinstance(fields, dict) else {}


def _texts(value: object) -> list[str]:
    """Return a text or a list of them as a list. YAML takes Norway's `no` for False."""
    values = value if isinstance(value, list) else [value]
    return ["no" if item is False else item for item in values if isinstance(item, str) or item is False]
