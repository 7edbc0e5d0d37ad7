"""Texts of any length: encoded a piece at a time, and read in windows that overlap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from model.package import PackageTokenizer
from model.package.words import WITHOUT_SPACES, is_mark
from service.engine.admission import Permit
from service.engine.arrays import Array
from service.engine.inputs import TextInput
from service.tasks.pool import Pool
from service.tasks.texts import CHARACTERS_PER_INPUT, PIECE

# Where tokenizers part words, too, so that a text has the same tokens in pieces as it has whole: single spaces, or else
# (where SentencePiece's may add a token) other white space, or behind a mark of scripts without spaces.
_GAPS = (
    re.compile(r"(?<=\S) (?=\S)"),
    re.compile(r"(?<=\S)\s(?=\S)"),
    re.compile(r"(?<=[。！？、，；：」』》）”’])(?=[^\s」』》）”’])"),
)
_WITHOUT_SPACES = re.compile(f"[{WITHOUT_SPACES}]")


class TooManyTokens(Exception):
    """A text has more tokens than are allowed."""


@dataclass(frozen=True, eq=False)
class LongText:
    """The N tokens of a text, and what stands around them in every window: special tokens, and another text."""

    before: TextInput
    after: TextInput
    ids: Array  # (N,)
    segment: int
    offsets: Array  # (N, 2), the characters [start, end) of each token
    words: Array  # (N,), the number of each token's word in the text; each is one in scripts without spaces

    @property
    def around(self) -> int:
        """How many tokens of a window are not the text's."""
        return len(self.before.ids) + len(self.after.ids)

    def windows(self, limit: int, overlap: int) -> list[range]:
        """Return the tokens of each window; all have `limit` ids with what stands around them, the last one fewer."""
        size, count = limit - self.around, len(self.ids)
        return [range(start, min(start + size, count)) for start in self._starts(limit, overlap)]

    def count_windows(self, limit: int, overlap: int) -> int:
        """Return how many windows there would be: there may be one for each token."""
        return len(self._starts(limit, overlap))

    def _starts(self, limit: int, overlap: int) -> range:
        return range(0, max(1, len(self.ids) - overlap), limit - self.around - overlap)

    def input(self, window: range) -> TextInput:
        """Return a window as an encoder takes it."""
        ids, segments = self.ids[window.start : window.stop].tolist(), [self.segment] * len(window)
        return TextInput(
            [*self.before.ids, *ids, *self.after.ids],
            [*self.before.segment_ids, *segments, *self.after.segment_ids],
        )


def read_from(windows: list[range]) -> list[range]:
    """Return of each window the tokens that are read there: where two overlap, those that are nearer its middle."""
    parted = [(window.stop + after.start) // 2 for window, after in pairwise(windows)]
    return [range(start, stop) for start, stop in zip([0, *parted], [*parted, windows[-1].stop], strict=True)]


async def encode_long(
    pool: Pool,
    permit: Permit,
    tokenizer: PackageTokenizer,
    texts: tuple[str, ...],
    *,
    part: int,
    prompt: str = "",
    most: int,
) -> LongText:
    """Encode a text, or that numbered `part` of two, in whatever length; raises `TooManyTokens` beyond `most`.

    The tokens of a prompt, which is put before it, are not the text's: every window has them.
    """
    long: list[LongText] = []
    tokens, around = 0, sum(map(len, texts)) - len(texts[part]) + CHARACTERS_PER_INPUT
    for start, piece in _pieces(texts[part]):
        before = prompt
        if start and (prompt or not piece[0].isspace() or not tokenizer.parts_before_spaces):
            before += texts[part][start - 1]  # as in the whole text, lest a space is put before the piece
        whole = [*texts[:part], before + piece, *texts[part + 1 :]]
        encoded = await pool.run(permit, around + len(piece), _encode, tokenizer, whole, part, start, len(before))
        tokens += len(encoded.ids)
        if tokens > most:
            raise TooManyTokens
        long.append(encoded)
    return long[0] if len(long) == 1 else _joined(long)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield a text piece by piece, each with the character where it starts: a single white space if there is one."""
    start = 0
    while len(text) - start > PIECE:
        stop = _last_gap(text, start + PIECE * 7 // 8, start + PIECE)
        yield start, text[start:stop]
        start = stop
    yield start, text[start:]


def _last_gap(text: str, start: int, stop: int) -> int:
    """Return the last character behind `start` where a text may be cut: at a gap, or else before any but a mark."""
    for gap in _GAPS:
        if found := [match.start() for match in gap.finditer(text, start, stop + 1)]:
            return found[-1]
    return next((place for place in range(stop, start, -1) if not is_mark(text[place])), stop)


def _encode(tokenizer: PackageTokenizer, texts: list[str], part: int, start: int, skipped: int) -> LongText:
    """Encode a piece that starts at a character of its text, behind so many characters that are not its own."""
    found = tokenizer.encode(*texts)
    offsets = np.array(found.offsets, np.int64).reshape(-1, 2)
    is_text = np.array([text == part for text in found.texts], bool)
    if skipped:  # else the text begins with its first token, which may stand for none of its characters
        is_text &= offsets[:, 1] > skipped
    places = np.flatnonzero(is_text)
    first, stop = (int(places[0]), int(places[-1]) + 1) if len(places) else (len(found.ids), len(found.ids))
    words = np.array([-1 if word is None else word for word in found.words], np.int64)[first:stop]
    # What stands between two spaces is no word in some scripts.
    is_apart = np.array([_WITHOUT_SPACES.search(texts[part], *span) is not None for span in offsets[first:stop]], bool)
    is_new = np.ones(len(words), bool)
    # But tokens that are bytes of one character are no words, nor is one that begins within another.
    is_behind = offsets[first + 1 : stop, 0] >= offsets[first : max(first, stop - 1), 1]
    is_new[1:] = (words[1:] != words[:-1]) | (words[1:] < 0) | ((is_apart[1:] | is_apart[:-1]) & is_behind)
    return LongText(
        before=TextInput(found.ids[:first], found.segment_ids[:first]),
        after=TextInput(found.ids[stop:], found.segment_ids[stop:]),
        ids=np.array(found.ids[first:stop], np.int64),
        segment=found.segment_ids[first] if len(places) else 0,
        offsets=offsets[first:stop] - skipped + start,
        words=np.cumsum(is_new) - 1,
    )


def _joined(pieces: list[LongText]) -> LongText:
    framed = next((piece for piece in pieces if len(piece.ids)), pieces[0])  # by a piece that has text
    numbers = np.cumsum([0, *(int(piece.words[-1]) + 1 if len(piece.words) else 0 for piece in pieces[:-1])])
    return LongText(
        before=framed.before,
        after=framed.after,
        ids=np.concatenate([piece.ids for piece in pieces]),
        segment=framed.segment,
        offsets=np.concatenate([piece.offsets for piece in pieces]),
        words=np.concatenate([piece.words + first for piece, first in zip(pieces, numbers, strict=True)]),
    )
