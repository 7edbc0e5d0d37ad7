"""The licence of a checkpoint, in the front matter of its README.md that the hub asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model.package.yaml_text import NotYaml, parse_yaml

NOT_STATED = "not stated"


def read_licence(folder: Path) -> str:
    """Return the licence of a folder's README.md, as its authors wrote it; one that states none is no error."""
    fields = _front_matter(folder / "README.md")
    # "other" has its true name in another field.
    licences = _texts(fields.get("license"))
    if licences == ["other"]:
        licences = _texts(fields.get("license_name")) or licences
    return ", ".join(licences) or NOT_STATED


def _front_matter(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    if not text.startswith("---"):
        return {}
    try:
        fields = parse_yaml(text.split("\n---", 1)[0].removeprefix("---"), twice=True)
    except NotYaml:  # a card is free text, and often broken
        return {}
    return fields if isinstance(fields, dict) else {}


def _texts(value: object) -> list[str]:
    """Return a text or a list of them as a list."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]
