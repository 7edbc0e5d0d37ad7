"""Which models answer questions, and how: said by the manifest alone, so that the gateway knows it too."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from model.package import Manifest
from service.schemas.decide import Option, Question, Way


def way_of(manifest: Manifest) -> Way | None:
    """Return how a model answers questions; None: it does not."""
    if manifest.image is not None:
        return None
    if manifest.entailment is not None:
        return "entailment"
    if manifest.is_cross_encoder:
        return "relevance"
    if "classify" in manifest.tasks:
        return "labels"
    return "likelihood" if "generate" in manifest.tasks and "encoder" not in manifest.graphs else None


def fits(manifest: Manifest, question: Question) -> bool:
    """Whether a model can answer a question: one with labels of its own must have a label for each option."""
    return way_of(manifest) != "labels" or all(
        place_of(option, manifest.labels) is not None for option in question.options
    )


def place_of(option: Option, labels: Sequence[str]) -> int | None:
    """Return the place of the label that means an option, in any case and code of accents; None if there is none."""
    places = _places(tuple(labels))
    return next((places[name] for name in map(_plain, option.names) if name in places), None)


@lru_cache  # for each option of each question
def _places(labels: tuple[str, ...]) -> dict[str, int]:
    return {_plain(label): place for place, label in enumerate(labels)}


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip().casefold())
