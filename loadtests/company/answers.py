"""What is compared of two answers to one input, and how far one has moved from the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Protocol


@dataclass(frozen=True)
class Move:
    """How far an answer is from the one that came alone."""

    distance: float  # by which moves of one kind are sorted
    said: str


class Answer(Protocol):
    """The answer to one input."""

    def moved(self, alone: Answer) -> Move | None:
        """Return how far it is from another answer to the same input; None where they are the same."""


@dataclass(frozen=True)
class Vector:
    """An embedding."""

    numbers: Sequence[float]

    def moved(self, alone: Answer) -> Move | None:
        """Compare number by number; the distance is 1 − cosine."""
        assert isinstance(alone, Vector), "bug: answers of one kind are compared"
        if list(self.numbers) == list(alone.numbers):
            return None
        gap = 1 - cosine(self.numbers, alone.numbers)
        return Move(gap, f"cosine 1 − {max(gap, 0.0):.2g}")


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors; 0 where their sizes differ."""
    if len(one) != len(other):
        return 0.0
    lengths = math.hypot(*one) * math.hypot(*other)
    return math.fsum(map(mul, one, other)) / lengths if lengths else 0.0


@dataclass(frozen=True)
class Scores:
    """Labels and their scores, or a rank's."""

    by_label: Mapping[str, float]

    def moved(self, alone: Answer) -> Move | None:
        """Compare score by score; another best label is farther than any score."""
        assert isinstance(alone, Scores), "bug: answers of one kind are compared"
        if self.by_label == alone.by_label:
            return None
        names = self.by_label.keys() | alone.by_label.keys()
        gap = max(abs(self.by_label.get(name, math.inf) - alone.by_label.get(name, math.inf)) for name in names)
        if self._best() != alone._best():
            return Move(math.inf, f"label {alone._best()!r} became {self._best()!r}")
        return Move(gap, f"a score by {gap:.2g}")

    def _best(self) -> str:
        return max(self.by_label, key=lambda name: (self.by_label[name], name))


@dataclass(frozen=True)
class Text:
    """A text that was generated."""

    text: str

    def moved(self, alone: Answer) -> Move | None:
        """Compare character by character; the sooner they part the farther they are."""
        assert isinstance(alone, Text), "bug: answers of one kind are compared"
        if self.text == alone.text:
            return None
        pairs = zip(self.text, alone.text, strict=False)
        same = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
        parted = min(len(self.text), len(alone.text)) if same is None else same
        return Move(1 / (1 + parted), f"texts part at character {parted} of {len(alone.text)}")
