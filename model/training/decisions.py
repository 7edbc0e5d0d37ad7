"""What decides how a run comes out: noted when it begins, and compared when it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from model.card import Card
from model.checked import ConfigError, flat
from model.config import TransformerConfig
from model.package.files import sha256_of
from model.training.errors import RunError
from model.training.objectives import Objective
from model.training.recipe import Recipe

# What fields of recipes were called when a run was begun that may go on.
FORMER = {"averaging": "ema_decay", "matrix_learning_rate": "muon_learning_rate", "begins_with": "starts_from"}


@dataclass(frozen=True)
class Decisions:
    """All that decides a run but its code, as what JSON has. Files are told by their SHA-256."""

    recipe: dict[str, Any]
    objective: dict[str, Any]
    start: dict[str, Any]  # of the run whose weights it begins with; empty where it begins with none
    data: dict[str, str]  # file, from the folder of data sets on, → hash
    tokenizer: str | None  # its file's hash; none of images
    model: dict[str, Any]
    steps: int

    def named(self) -> Iterator[tuple[str, Any]]:
        """Yield names, as messages have them, and values; what others follow from comes before them."""
        yield from self.recipe.items()
        yield from flat({"objective": self.objective}).items()
        yield from self.start.items()
        for file, digest in self.data.items():
            yield f"the file {file} of sha256", digest
        yield "a tokenizer.json of sha256", self.tokenizer
        yield from flat({"model": self.model}).items()
        yield "steps", self.steps

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON gives it back."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=_plain))
        return values


def values_of_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe's fields, functions by name.

    What nameless functions make is noted where it is made. Of the card only the labels decide anything.
    """
    values: dict[str, Any] = {}
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        if isinstance(value, Card):
            values["labels"] = list(value.labels)
        elif not callable(value):
            values[field.name] = value
        elif value.__name__ != "<lambda>":
            values[field.name] = value.__name__
    return values


def values_of_objective(objective: Objective) -> dict[str, Any]:
    """Return an objective's kind and what it was made with, but the tokenizer."""
    assert is_dataclass(objective), "bug: objectives are dataclasses, whose fields tell what they were made with"
    made_with = {field.name for field in fields(objective) if field.init} - {"tokenizer"}
    return {"kind": type(objective).__name__, **{name: getattr(objective, name) for name in sorted(made_with)}}


def hashes_of(files: Iterable[Path], folder: Path) -> dict[str, str]:
    """Return the SHA-256 of files by their path from `folder` on."""
    return {file.relative_to(folder).as_posix(): sha256_of(file) for file in sorted(files)}


def check_unchanged(folder: Path, then: Decisions, now: Decisions) -> None:
    """Refuse to go on with a run that was begun otherwise; raises `RunError`, which names the first difference.

    What only one of two versions of this software notes, and is nothing there, decides nothing; nor does a field of
    the model that an older version had not, and that has its default now.
    """
    noted, after = _by_name(replace(then, model=_with_defaults(then.model))), _by_name(now)
    before = {FORMER.get(name, name): value for name, value in noted.items()}
    # Of labels of one's own the recipe follows from the files, so those that there were and are come first.
    files = {f"the file {file} of sha256" for file in then.data.keys() & now.data.keys()}
    for name in sorted(before | after, key=lambda name: name not in files):
        is_in_both = name in before and name in after
        if before.get(name) != after.get(name) and (is_in_both or before.get(name) or after.get(name)):
            raise RunError(
                f"{folder}: the run was begun with {name} {_told(before, name)}, and now it is {_told(after, name)}; "
                "put back what it was, train into another folder, or remove this one to begin anew"
            )


def _by_name(decisions: Decisions) -> dict[str, Any]:
    """Return all values as JSON gives them back, whether they were read or have just been made."""
    return dict(Decisions(**decisions.to_dict()).named())


def _with_defaults(model: dict[str, Any]) -> dict[str, Any]:
    """Return a model's configuration with all fields that there are now; what cannot be read is left as it is."""
    try:
        return TransformerConfig.from_dict(model).to_dict()
    except ConfigError:
        return model


def _told(values: Mapping[str, Any], name: str) -> str:
    return str(values[name]) if name in values else "not there"


def _plain(value: Any) -> Any:
    """Return what JSON has in the place of a value that it has not."""
    assert isinstance(value, BaseModel), f"bug: {value!r} decides something and cannot be noted"
    return value.model_dump(mode="json")
