"""Text ↔ token ids, with the tokenizer that a package carries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

import tokenizers
from tokenizers import NormalizedString, PreTokenizedString, Tokenizer
from tokenizers.models import BPE, Unigram

from model.package.clean_up import cleaned_up, raw
from model.package.encoders import PairText
from model.package.part import Side
from model.package.token_bytes import NoBytes, TokenBytes, token_bytes, writing

NOTHING = r"(?!)"  # a pattern that no text has
REPLACEMENT = "\ufffd"  # what decoding shows for bytes that are not yet a whole character
# Words that a tokenizer keeps with their tokens, for each thread, and never gives back: 10 MB of the longest there are.
# By default they are 10,000, 85 to 130 MB; then ordinary sentences are encoded in 0.93 to 0.97 of the time (BPE) or in
# 0.87 (Unigram), of some 45 µs each.
WORDS_KEPT = 1000


@dataclass(frozen=True)
class Encoding:
    """A text's token ids, and which of them belong to the second text of a pair."""

    ids: list[int]
    segment_ids: list[int]
    _found: tokenizers.Encoding
    _parts: _Parts | None = None  # of a pair that is one text

    @property
    def tokens(self) -> list[str]:
        """The tokens as the vocabulary has them."""
        tokens: list[str] = self._found.tokens
        return tokens

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The characters [start, end) of its text that each token stands for."""
        offsets: list[tuple[int, int]] = self._found.offsets if self._parts is None else self._parts.offsets
        return offsets

    @property
    def special(self) -> list[bool]:
        """Which tokens were added to the text, or stand around the texts of a pair."""
        if self._parts is not None:
            return [text is None for text in self._parts.texts]
        return [added == 1 for added in self._found.special_tokens_mask]

    @property
    def words(self) -> list[int | None]:
        """Of which word of its text each token is a part, as the tokenizer parts words; none of special tokens."""
        words: list[int | None] = self._found.word_ids
        return words

    @property
    def texts(self) -> list[int | None]:
        """Of which text of a pair each token is, 0 or 1; none of special tokens."""
        texts: list[int | None] = self._found.sequence_ids if self._parts is None else self._parts.texts
        return texts

    def shortened(self, limit: int, *, only: int | None = None, side: Side = "right", kept: int = 0) -> Encoding:
        """Return it with no more than `limit` ids. Texts lose their ends, or their beginnings; special tokens stay.

        A text that loses its beginning keeps its first `kept` characters, as a prompt that stands before it; of a pair
        the first text does. Spaces at its end are not to be counted: one may be in the first token of what follows.

        Only ids and segments are shortened: tokens, offsets, words and texts are still those of the whole text.

        Of a pair the longer text is cut first, or that numbered `only`: then the limit holds only if the other fits.
        """
        if len(self.ids) <= limit:
            return self
        texts, ids, segment_ids = self.texts, list(self.ids), list(self.segment_ids)
        counts = texts.count(0), texts.count(1)
        shares = _shares(*counts, max(0, limit - texts.count(None)), only)
        for text in (1, 0):  # the second first, as the places before it stay the same
            if counts[text]:
                start = texts.index(text)
                stop, lost = start + counts[text], counts[text] - shares[text]
                if side == "left":
                    first = 0 if text else sum(begin < kept for begin, _ in self.offsets[start:stop])
                    start += min(first, shares[text])
                cut = slice(start, start + lost) if side == "left" else slice(stop - lost, stop)
                del ids[cut], segment_ids[cut]
        return replace(self, ids=ids, segment_ids=segment_ids)


@dataclass(frozen=True)
class _Parts:
    """Where the tokens of a pair that is one text are: of which text, and of which of its characters."""

    texts: list[int | None]  # none of a token that is, if only in part, of what stands around them
    offsets: list[tuple[int, int]]

    @classmethod
    def of(cls, offsets: Sequence[tuple[int, int]], bounds: Sequence[tuple[int, int]], lost: Sequence[int]) -> _Parts:
        """Return the parts of tokens at `offsets` of the whole, whose texts are within `bounds`.

        `lost` is how many characters each text had before what stands there. White space that a tokenizer leaves out of
        its offsets is the text's in which it ends.
        """
        texts: list[int | None] = [None] * len(offsets)
        own = [(0, 0)] * len(offsets)
        for text, (first, end) in enumerate(bounds):
            within = [place for place, (start, stop) in enumerate(offsets) if first <= start and first < stop <= end]
            for place in range(within[0], within[-1] + 1) if within else ():
                texts[place] = text
                start, stop = (max(0, edge - first) + lost[text] for edge in offsets[place])
                own[place] = start, stop
        return cls(texts, own)


def _shares(first: int, second: int, room: int, only: int | None) -> list[int]:
    """Part the room between two texts of so many tokens."""
    if only is not None:
        return [max(0, room - second), second] if only == 0 else [first, max(0, room - first)]
    short = min(first, second, room // 2)  # the longer one gets what the shorter one leaves
    return [short, room - short] if first <= second else [room - short, short]


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Return a token's id; raises `KeyError` for a token that the vocabulary lacks."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise KeyError(token)
    return found


class PackageTokenizer:
    """The tokenizer of a model package, as it was trained: special tokens are added by its own post-processor.

    With `pair_text` two texts are read as one, as it says.
    """

    def __init__(self, tokenizer: Tokenizer, pair_text: PairText | None = None) -> None:
        self._pair_text = pair_text
        uncleaned = raw(tokenizer)
        self.cleans_up = uncleaned is not None  # what it decodes
        self._tokenizer = tokenizer = uncleaned or tokenizer
        if isinstance(tokenizer.model, BPE | Unigram):  # others keep none
            tokenizer.model._resize_cache(WORDS_KEPT)
        # The text of each single id, and as it is behind another: a decoder may strip a text's first space.
        self.text_of: Mapping[int, str] = _Texts(tokenizer, cleans_up=self.cleans_up)
        self.text_behind: Mapping[int, str] = _Texts(tokenizer, cleans_up=self.cleans_up, is_behind=True)
        self._bytes_of_parts: dict[int, tuple[int, ...] | None] = {}
        tokenizer.no_truncation()
        tokenizer.no_padding()

    @classmethod
    def load(cls, path: Path, pair_text: PairText | None = None) -> PackageTokenizer:
        """Read a `tokenizer.json`."""
        return cls(Tokenizer.from_file(str(path)), pair_text)

    @property
    def fixed_characters(self) -> int:
        """How many characters stand around the two texts of each pair, and are read with them."""
        return 0 if self._pair_text is None else self._pair_text.fixed_characters

    @cached_property
    def vocab_size(self) -> int:
        """How far its token ids go: one more than the highest, for some vocabularies leave ids out."""
        return 1 + max(self._tokenizer.get_vocab().values(), default=-1)

    @cached_property
    def unused_ids(self) -> list[int]:
        """The ids below `vocab_size` that are no token's."""
        return sorted(set(range(self.vocab_size)).difference(self._tokenizer.get_vocab().values()))

    def id_of(self, token: str) -> int:
        """Return a token's id; raises `KeyError` for a token that the vocabulary lacks."""
        return token_id(self._tokenizer, token)

    def token_if_any(self, token: int) -> str | None:
        """Return an id's token, as the vocabulary has it; models may have rows for ids that it lacks."""
        found: str | None = self._tokenizer.id_to_token(token)
        return found

    def token_of(self, token: int) -> str:
        """Return an id's token, as the vocabulary has it."""
        found = self.token_if_any(token)
        assert found is not None, "bug: ids are checked against the vocabulary"
        return found

    def encode(self, text: str, pair: str | None = None, *, adds_special: bool = True, plain: bool = False) -> Encoding:
        """Encode a text, or two as one input, with the special tokens that the tokenizer adds, or without.

        In a single text that is `plain` nothing is a special token, whatever it looks like. (Where something looks so,
        words that were added to the vocabulary are read as characters, too.)
        """
        if plain and pair is None and self._looks_special(text):
            found = self._tokenizer.post_process(_plain(self._tokenizer, text), None, adds_special)
            return Encoding(found.ids, found.type_ids, found)
        if pair is not None and self._pair_text is not None:
            return self._encode_as_one(self._pair_text, text, pair)
        # Unlike encode, encode_batch lets other threads run meanwhile.
        given = text if pair is None else (text, pair)
        (found,) = self._tokenizer.encode_batch([given], add_special_tokens=adds_special)
        return Encoding(found.ids, found.type_ids, found)

    def _encode_as_one(self, form: PairText, first: str, second: str) -> Encoding:
        lost = [len(text) - len(text.lstrip()) if form.strips else 0 for text in (first, second)]
        if form.strips:
            first, second = first.strip(), second.strip()
        (found,) = self._tokenizer.encode_batch([form.of(first, second)], add_special_tokens=False)
        start = len(form.before)
        behind = start + len(first) + len(form.between)
        bounds = (start, start + len(first)), (behind, behind + len(second))
        return Encoding(found.ids, [0] * len(found.ids), found, _Parts.of(found.offsets, bounds, lost))

    @cached_property
    def parts_before_spaces(self) -> bool:
        """Whether what begins with a space has the tokens alone that it has behind a word.

        Not where another space is put before it, as Llama 2's tokenizer does.
        """
        whole, *parts = (self._tokenizer.encode(text, add_special_tokens=False).ids for text in ("a b", "a", " b"))
        return whole == [token for part in parts for token in part]

    def encode_plainly(self, text: str) -> list[int]:
        """Return the ids of a text in which nothing is a special or added token, whatever it looks like."""
        return _plain(self._tokenizer, text).ids

    def _looks_special(self, text: str) -> bool:
        """Tell whether a text has what looks like a special token, as it is or, of some tokens, when normalized."""
        as_it_is, once_normalized = self._special_patterns
        if as_it_is.search(text):
            return True
        return once_normalized is not None and bool(
            once_normalized.search(self._tokenizer.normalizer.normalize_str(text))
        )

    @cached_property
    def _special_patterns(self) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
        special = [token for token in self._tokenizer.get_added_tokens_decoder().values() if token.special]
        normalizer = self._tokenizer.normalizer
        # What a normalizer puts before each text, as Llama 2's does, is not the token's.
        changed = [token.content for token in special if token.normalized and normalizer is not None]
        normalized = [normalizer.normalize_str(content).strip("\u2581 ") for content in changed]
        return _any_of(token.content for token in special), _any_of(normalized) if changed else None

    def added_tokens(self) -> dict[str, tuple[int, bool]]:
        """Return the added tokens: what each stands for in a text → its id, and whether it is a special one."""
        found = self._tokenizer.get_added_tokens_decoder()
        return {token.content: (token_id, token.special) for token_id, token in found.items()}

    def token_bytes(self) -> TokenBytes:
        """Return what each token writes; raises `NoBytes` where a token alone does not say it."""
        if self.cleans_up:
            raise NoBytes("its decoder takes away spaces before punctuation")
        return token_bytes(self._tokenizer)

    def bytes_of_part(self, token: int) -> tuple[int, ...] | None:
        """Return the bytes of a token that is no whole character, or has a part of one, if they are known."""
        if token not in self._bytes_of_parts:
            write = self._write if REPLACEMENT in self.text_behind[token] else None
            found = b"" if write is None else write(self.token_of(token))
            self._bytes_of_parts[token] = None if _is_whole(found) else tuple(found)
        return self._bytes_of_parts[token]

    @cached_property
    def _write(self) -> Callable[[str], bytes] | None:
        try:
            return writing(self._tokenizer)[0]
        except NoBytes:
            return None

    def decode(self, ids: Sequence[int], *, skips_special: bool = True) -> str:
        """Return the text of ids, special tokens left out unless they are asked for."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=skips_special)
        return cleaned_up(text) if self.cleans_up else text

    def decode_raw(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens, before it is cleaned up where this tokenizer does that."""
        return self._tokenizer.decode(list(ids))


def _is_whole(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, filter(None, texts))) or NOTHING)


def _plain(tokenizer: Tokenizer, text: str) -> tokenizers.Encoding:
    """Encode as a tokenizer does that knows no added tokens."""
    found = _of_parts(tokenizer, text, None)
    added = tokenizer.get_added_tokens_decoder()
    special = {token: each.content for token, each in added.items() if each.special}
    if special.keys().isdisjoint(found.ids):
        return found
    # A vocabulary of pieces has special tokens among them, so all are taken apart before, not only those that were
    # found: what is cut elsewhere may show others.
    return _of_parts(tokenizer, text, _any_of(special.values()))


def _of_parts(tokenizer: Tokenizer, text: str, apart: re.Pattern[str] | None) -> tokenizers.Encoding:
    parts = PreTokenizedString(text)
    if tokenizer.normalizer is not None:
        parts.normalize(tokenizer.normalizer.normalize)
    if tokenizer.pre_tokenizer is not None:
        tokenizer.pre_tokenizer.pre_tokenize(parts)
    if apart is not None:
        parts.split(partial(_taken_apart, apart))
    parts.tokenize(tokenizer.model.tokenize)
    return parts.to_encoding()


def _taken_apart(found: re.Pattern[str], _: int, piece: NormalizedString) -> list[NormalizedString]:
    """Cut a piece behind the first character of each that is found in it."""
    places = [0, *(match.start() + 1 for match in found.finditer(str(piece.normalized))), len(piece.normalized)]
    cut = (piece.slice((start, end)) for start, end in pairwise(places))
    return [each for each in cut if each is not None]


class _Texts(dict[int, str]):
    """Texts of single ids, each decoded when it is first asked for: at most the vocabulary.

    It does not know the `PackageTokenizer` that has it: a circle would stay for ever where the collector of garbage
    passes it over (`service/replica.py`).
    """

    def __init__(self, tokenizer: Tokenizer, *, cleans_up: bool, is_behind: bool = False) -> None:
        super().__init__()
        self._tokenizer, self._cleans_up, self._is_behind = tokenizer, cleans_up, is_behind

    def __missing__(self, token: int) -> str:
        before = self._anchor if self._is_behind else []
        text = self[token] = self._decode([*before, token])[len(self._decode(before)) :]
        return text

    @cached_property
    def _anchor(self) -> list[int]:
        """A token to stand before another; none where the vocabulary has no letter."""
        of_letters = (_plain(self._tokenizer, letter).ids for letter in "aeo1.")
        return next((ids[-1:] for ids in of_letters if ids and self._decode(ids[-1:])), [])

    def _decode(self, ids: list[int]) -> str:
        text = self._tokenizer.decode(ids)
        return cleaned_up(text) if self._cleans_up else text
