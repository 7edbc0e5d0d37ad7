"""Given names, to vary those few that fill a data set: half of Tatoeba's sentences are about Tom and Mary."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

# All begin with a consonant, so that French needs no elision ("de Tom", but "d'Anna").
BOYS = (
    "Ben Bill Bob Carl Charles Chris Dan Daniel David Dennis Felix Frank Fred George Greg Hans Jack Jacob "
    "James Jan Jim Joe John Jonas Julian Karl Kevin Lars Leo Liam Louis Lucas Mark Martin Matt Max Michael "
    "Mike Nick Nils Noah Patrick Paul Peter Philip Pierre Ray Richard Robert Sam Simon Steve Sven Theo Thomas "
    "Tim Tony Victor Will"
)
GIRLS = (
    "Barbara Britta Carla Carol Christine Clara Claire Daisy Diana Dora Fiona Frida Gina Grace Greta Hannah "
    "Helen Jane Jessica Joan Judy Julia Karin Kate Kim Laura Lena Linda Lisa Lucy Maja Maria Marie Martha Mia "
    "Nancy Nina Nora Paula Petra Rachel Rita Rosa Ruth Sally Sandra Sara Sophie Stella Susan Tina Vera Wendy "
    "Zoe"
)
REPLACEMENTS = {"Tom": BOYS.split(), "Mary": GIRLS.split()}


def vary_names(source: str, target: str, rng: random.Random) -> tuple[str, str]:
    """Replace each common name by another of its gender, in half of the pairs that have it equally often on both sides.

    So a translator learns to carry names over, also those it has never seen. Inflected names ("Toms") stay.
    """
    for name, replacements in REPLACEMENTS.items():
        pattern = re.compile(rf"\b{name}\b")
        counts = {len(pattern.findall(text)) for text in (source, target)}
        if len(counts) == 1 and counts != {0} and rng.random() < 0.5:
            chosen = rng.choice(replacements)
            source, target = pattern.sub(chosen, source), pattern.sub(chosen, target)
    return source, target


def with_varied_names(rows: Sequence[tuple[str, str, str]], seed: int) -> list[tuple[str, str, str]]:
    """Vary the names of (language, source, target) rows."""
    rng = random.Random(seed)
    return [(language, *vary_names(source, target, rng)) for language, source, target in rows]
