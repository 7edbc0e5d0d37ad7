"""Alignment error rate: 1 − (|A∩S| + |A∩P|) / (|A| + |S|), of links A, sure S and possible P (Och and Ney 2003).

Beside the service's two ways stand the diagonal, the attention as it is, and, if it is installed, eflomal (Östling and
Tiedemann 2016): words, their order and fertility, learned from the training pairs and the pairs measured.
"""

from __future__ import annotations

import csv
import importlib
import lzma
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

from model.package import Manifest, PackageTokenizer
from model.package.manifest import TOKENIZER_FILE
from service.engine.arrays import Array
from service.engine.explaining.explainer import Explainer
from service.tasks.explaining.aligner import Aligner
from service.tasks.explaining.alignment import by_attention, by_vectors
from service.tasks.explaining.tokens import Span, words_of, words_of_tokens

SETS = {"en_de_europarl100": "de", "en_fr_alibi": "fr", "en_fr_hansards": "fr"}
Links = set[tuple[int, int]]


@dataclass(frozen=True)
class Pair:
    """Two texts in words, and people's links between them."""

    source: list[str]
    target: list[str]
    sure: Links
    possible: Links


def pairs_of(data: Path, name: str) -> list[Pair]:
    """Read a data set."""
    with lzma.open(data / "word_alignment" / f"{name}.tsv.xz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        Pair(row["source"].split(" "), row["target"].split(" "), *(_links(row[kind]) for kind in ("sure", "possible")))
        for row in rows
    ]


def _links(written: str) -> Links:
    found = (pair.split("-") for pair in written.split())
    return {(int(source), int(target)) for source, target in found}


def error_rate(found: Sequence[Links], pairs: Sequence[Pair]) -> float:
    """Return the alignment error rate of links."""
    right = sum(len(links & pair.sure) + len(links & pair.possible) for links, pair in zip(found, pairs, strict=True))
    return 1 - right / sum(len(links) + len(pair.sure) for links, pair in zip(found, pairs, strict=True))


def error_rates(folder: Path, data: Path, count: int) -> str:
    """Return a table: a row for each way, a column for each data set."""
    manifest = Manifest.load(folder)
    tokenizer = PackageTokenizer.load(folder / TOKENIZER_FILE)
    aligner = Aligner(manifest, tokenizer, Explainer(folder, manifest))
    columns: list[dict[str, float]] = []
    for name, language in SETS.items():
        pairs = pairs_of(data, name)[: count or None]
        found = {
            "diagonal": [_diagonal(pair) for pair in pairs],
            "attention, each word's largest": _attended(aligner, tokenizer, pairs, language, _largest),
            "attention": _attended(aligner, tokenizer, pairs, language, by_attention),
            "vectors": [_by_vectors(aligner, pair, language) for pair in pairs],
        }
        if find_spec("eflomal"):
            found["eflomal"] = _statistical(pairs, data / f"tatoeba_en_{language}" / "train.tsv.xz", language)
        columns.append({way: error_rate(links, pairs) for way, links in found.items()})
    rows = [" | ".join(["", *SETS])]
    rows += [" | ".join([way, *(f"{100 * column[way]:.1f}" for column in columns)]) for way in columns[0]]
    return "\n".join(rows)


def _diagonal(pair: Pair) -> Links:
    across = (len(pair.source) - 1) / max(1, len(pair.target) - 1)
    return {(round(place * across), place) for place in range(len(pair.target))}


def _by_vectors(aligner: Aligner, pair: Pair, language: str) -> Links:
    source, target = (" ".join(words) for words in (pair.source, pair.target))
    sides = aligner.read(source, "en", language), aligner.read(target, language, "en")
    links = by_vectors(*(aligner.vectors(side) for side in sides))
    return _of_words(links, pair, sides[0].spans, sides[1].spans)


def _attended(
    aligner: Aligner,
    tokenizer: PackageTokenizer,
    pairs: Sequence[Pair],
    language: str,
    choose: Callable[[Array], list[tuple[int, int]]],
) -> list[Links]:
    found = []
    for pair in pairs:
        side = aligner.read(" ".join(pair.source), "en", language)
        target = tokenizer.encode(" ".join(pair.target), adds_special=False)
        weights = aligner.attention(side.ids, target.ids)[:, side.places]
        found.append(_of_words(choose(weights), pair, side.spans, target.offsets))
    return found


def _largest(weights: Array) -> list[tuple[int, int]]:
    return [(int(source), target) for target, source in enumerate(weights.argmax(axis=1))]


def _of_words(links: Sequence[tuple[int, int]], pair: Pair, source: Sequence[Span], target: Sequence[Span]) -> Links:
    """Return links of tokens as links of words."""
    of_source, of_target = (
        words_of_tokens(spans, " ".join(words), list(_places(words)))
        for spans, words in ((source, pair.source), (target, pair.target))
    )
    found = ((of_source[s], of_target[t]) for s, t in links)
    return {(s, t) for s, t in found if s is not None and t is not None}


def _places(words: Sequence[str]) -> Iterator[Span]:
    starts = accumulate((len(word) + 1 for word in words), initial=0)
    return ((start, start + len(word)) for start, word in zip(starts, words, strict=False))


def _statistical(pairs: Sequence[Pair], training: Path, language: str) -> list[Links]:
    """Return eflomal's links, of both directions those in common."""
    eflomal = importlib.import_module("eflomal")
    with lzma.open(training, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    sides: list[list[str]] = [[], []]
    for side, key, of_pair in ((0, "en", "source"), (1, language, "target")):
        sides[side] = [" ".join(getattr(pair, of_pair)).lower() for pair in pairs]
        sides[side] += [" ".join(row[key][start:end] for start, end in words_of(row[key])).lower() for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        forward, back = (str(Path(folder) / name) for name in ("forward", "back"))
        eflomal.Aligner().align(*sides, links_filename_fwd=forward, links_filename_rev=back)
        both = [Path(name).read_text().splitlines()[: len(pairs)] for name in (forward, back)]
    return [_links(one) & _links(other) for one, other in zip(*both, strict=True)]
