"""From the scores of tokens to entities (CoNLL's BIO, IOB and BIOES; Ramshaw and Marcus 1995)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.package import Aggregation
from model.package.words import is_mark
from service.engine.arrays import Array
from service.schemas import Entity
from service.tasks.texts import MAX_MARKS

OUTSIDE = "O"
_PREFIXED = re.compile(r"([BIEMSLUbi])-(.+)", re.DOTALL)
BIO = frozenset("BIbi")
FILLERS = frozenset({"X", "[PAD]", "<pad>", "[CLS]", "[SEP]", "<s>", "</s>", "[START]", "[END]"})  # of no entity
BEGIN, END = frozenset("BSU"), frozenset("ESLU")  # what begins an entity, and what ends one, whatever comes after it


class Tags:
    """The labels of a tagger: of each its kind, and whether it begins or ends an entity.

    A label of B or I (or b or i), a dash and a kind is of that kind. One of another letter is so only where all labels
    are of the scheme or `O`, for a kind may be called "E-mail"; labels with which some trainers fill rows up say
    nothing of the others.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)
        parts = [_PREFIXED.fullmatch(label) for label in labels]
        is_scheme = all(part or label == OUTSIDE or label in FILLERS for part, label in zip(parts, labels, strict=True))
        read = [part if part and (is_scheme or part[1] in BIO) else None for part in parts]
        prefixes = [part[1].upper() if part else "" for part in read]
        self.kinds = [part[2] if part else label for part, label in zip(read, labels, strict=True)]
        # Numbers of kinds, so that neighbours are compared as numbers.
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(self.kinds))}
        self.kind_numbers = np.array([numbers[kind] for kind in self.kinds])
        self.begins = np.array([prefix in BEGIN for prefix in prefixes])
        self.ends = np.array([prefix in END for prefix in prefixes])


@dataclass(frozen=True, eq=False)
class Tagged:
    """Parts of a text, tokens or words: the characters [start, end) of each, its likeliest label and its score."""

    starts: Array  # (N,)
    ends: Array
    labels: Array
    scores: Array


def entities(
    text: str,
    scores: Array,
    offsets: Array,
    words: Array,
    tags: Tags,
    aggregation: Aggregation,
    ignored: frozenset[str],
) -> list[Entity]:
    """Return the entities of a text by its tokens' scores (N, labels), characters (N, 2) and words (N,)."""
    if not len(scores):
        return []
    tagged = _tagged(scores, offsets, words, aggregation)
    if aggregation == "none":
        wanted = ~np.isin(tagged.labels, [number for number, label in enumerate(tags.labels) if label in ignored])
        return [
            _entity(text, tags.labels[label], score, start, end, offsets)
            for start, end, label, score in _rows(tagged, wanted)
        ]
    grouped = _grouped(tagged, tags)
    wanted = ~np.isin(grouped.labels, [number for number, kind in enumerate(tags.kinds) if kind in ignored])
    return [
        _entity(text, tags.kinds[label], score, start, end, offsets)
        for start, end, label, score in _rows(grouped, wanted)
    ]


def _tagged(scores: Array, offsets: Array, words: Array, aggregation: Aggregation) -> Tagged:
    """Tag every token, or every word by its tokens."""
    if aggregation in {"none", "simple"}:
        labels = scores.argmax(-1)
        return Tagged(offsets[:, 0], offsets[:, 1], labels, scores[np.arange(len(labels)), labels])
    first = np.flatnonzero(np.diff(words, prepend=words[0] - 1))  # tokens that begin a word
    last = np.append(first[1:], len(words)) - 1
    if aggregation == "first":
        by_word = scores[first]
    elif aggregation == "average":
        by_word = np.add.reduceat(scores, first) / (last - first + 1)[:, None]
    else:
        by_word = scores[_surest(scores.max(-1), words, first)]
    labels = by_word.argmax(-1)
    return Tagged(offsets[first, 0], offsets[last, 1], labels, by_word[np.arange(len(labels)), labels])


def _surest(best: Array, words: Array, first: Array) -> Array:
    """Return of each word its first token that has the highest of the best scores (N,) of the word's tokens."""
    is_surest = best == np.maximum.reduceat(best, first)[words - words[0]]
    places = np.flatnonzero(is_surest)
    _, firsts = np.unique(words[places], return_index=True)
    surest: Array = places[firsts]
    return surest


def _grouped(tagged: Tagged, tags: Tags) -> Tagged:
    """Join neighbours of one kind, unless one begins or the one before it ends an entity; scores become their means."""
    kinds = tags.kind_numbers[tagged.labels]
    is_first = np.ones(len(kinds), bool)
    is_first[1:] = (kinds[1:] != kinds[:-1]) | tags.begins[tagged.labels[1:]] | tags.ends[tagged.labels[:-1]]
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(kinds)) - 1
    means = np.add.reduceat(tagged.scores, first) / (last - first + 1)
    return Tagged(tagged.starts[first], tagged.ends[last], tagged.labels[first], means)


def _rows(tagged: Tagged, wanted: Array) -> list[tuple[int, int, int, float]]:
    columns = (tagged.starts, tagged.ends, tagged.labels, tagged.scores)
    return list(zip(*(column[wanted].tolist() for column in columns), strict=True))


def _entity(text: str, label: str, score: float, start: int, end: int, offsets: Array) -> Entity:
    following = int(np.searchsorted(offsets[:, 0], end))
    bound = int(offsets[following, 0]) if following < len(offsets) else len(text)
    start, end = trimmed(text, start, end, bound)
    return Entity(label, score, start, end, text[start:end])


def trimmed(text: str, start: int, end: int, bound: int) -> tuple[int, int]:
    """Return the characters without white space at either end, which some tokens begin with, and with all accents.

    A tokenizer that strips accents ends before one that is a character of its own, behind its letter. At `bound` the
    next token begins, which an accent of its own may be.
    """
    inside = text[start:end]
    stripped = inside.strip()
    if not stripped:
        return start, end
    start += len(inside) - len(inside.lstrip())
    end = start + len(stripped)
    most = min(bound, end + MAX_MARKS)
    while end < most and is_mark(text[end]):
        end += 1
    return start, end
