"""What may come next by a grammar: a bit for each token of the vocabulary, as llguidance tells them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

Bits = NDArray[np.bool_]  # (vocab_size,)

WORD = 32  # bits of a mask come in words of so many

# A mask takes some 30 µs, and with these seldom more than 30 ms: beyond them the grammar counts as one that cannot be
# met. Without them single masks took minutes. A state of the lexer takes one or two kilobytes.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 300_000,
    "step_lexer_fuel": 30_000,
    "step_max_items": 4_000,
    "max_items_in_row": 1_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 50_000,
    "verbose_errors": False,
}
WORN_OUT = "lexer error: too many"  # states or expressions, says llguidance then, of the lexer that all ways share
QUICK_S = 0.02  # to compile a grammar while other sequences wait
RENEWING_SHARE = 0.1  # of all time, that this may take


class GrammarError(Exception):
    """A grammar that llguidance does not understand, or that is beyond the limits; the message says why."""


class Vocabulary:
    """A model's tokens as grammars see them: what each writes."""

    def __init__(self, texts: Sequence[bytes | None], end: int, size: int) -> None:
        """`texts` has no text for special tokens; `size` is the width of the logits, perhaps more than it has."""
        self.size, self.end = size, end
        self._tokenizer = LLTokenizer(_Tokens(texts, end, size), eos_token=end)  # type: ignore[arg-type]  # as it asks

    def grammar(self, lark: str) -> Grammar:
        """Compile a grammar, from llguidance's own form of Lark; raises `GrammarError`. Lets other threads run."""
        begun = time.thread_time()  # not the clock, by which another's work would count
        matcher = self.matcher_of(lark)
        return Grammar(matcher, self, lark, time.thread_time() - begun)

    def matcher_of(self, lark: str) -> LLMatcher:
        """Return llguidance's own matcher at a grammar's beginning; raises `GrammarError`."""
        matcher = LLMatcher(self._tokenizer, lark, log_level=0, limits=LLParserLimits(**LIMITS))
        if matcher.is_error():
            raise GrammarError(matcher.get_error())
        return matcher


class _Tokens:
    """A vocabulary in the shape in which llguidance takes one that is not its own."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, texts: Sequence[bytes | None], end: int, size: int) -> None:
        self.tokens = [text or b"" for text in texts] + [b""] * (size - len(texts))
        self.tokens[end] = b"<end>"
        self.eos_token_id, self.special_token_ids = end, [end]

    def __call__(self, _text: str) -> list[int]:
        raise AssertionError("bug: grammars are compiled with no_forcing, which asks for no encoding")


class Grammar:
    """A compiled grammar, which many sequences may follow.

    All their ways share a lexer, whose states are bounded: a grammar that makes ever new ones is worn out after some
    outputs. Then it is compiled anew, here if that is quick, or by whoever keeps it, who is told by `is_spent`.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary, lark: str, seconds: float) -> None:
        self.vocabulary, self._lark, self._seconds = vocabulary, lark, seconds
        self._beginning = matcher
        self._renewing = Lock()
        self._renewed_at = -math.inf
        self.is_spent = False

    @property
    def end(self) -> int:
        """The token whose bit says whether the grammar may end."""
        return self.vocabulary.end

    def matcher(self) -> Matcher:
        """Return a row's way through it, at its beginning."""
        return Matcher(self, self._beginning, self._beginning)

    def renewed(self, worn: LLMatcher) -> LLMatcher | None:
        """Return a beginning that is not the worn one, or None where to compile one would keep others waiting."""
        with self._renewing:
            if self._beginning is worn:
                now = time.monotonic()
                if self._seconds > QUICK_S or now - self._renewed_at < self._seconds / RENEWING_SHARE:
                    self.is_spent = True
                    return None
                self._beginning, self._renewed_at = self.vocabulary.matcher_of(self._lark), now
            return self._beginning


class Matcher:
    """One row's way through a grammar. Tokens are read when somebody asks what may follow them."""

    def __init__(
        self,
        grammar: Grammar,
        beginning: LLMatcher,
        matcher: LLMatcher,
        read: Sequence[int] = (),
        unread: Sequence[int] = (),
    ) -> None:
        self._grammar, self._beginning = grammar, beginning
        self._matcher, self._is_own = matcher, False
        self._read, self._unread = list(read), list(unread)

    def add(self, token: int) -> None:
        """Go on by a token."""
        self._unread.append(token)

    def copy(self) -> Matcher:
        """Return the same way, for a row that continues this one; then this one is only there to be continued."""
        return Matcher(self._grammar, self._beginning, self._matcher, self._read, self._unread)

    @property
    def is_complete(self) -> bool:
        """Whether the grammar is met, and nothing may follow."""
        matcher = self._caught_up()
        return matcher.is_stopped() and not matcher.is_error()

    def allowed(self) -> Bits:
        """Return which tokens may come next (vocab_size,): the end where the grammar may end, none where none may."""
        size = self._grammar.vocabulary.size
        words = np.zeros(-(-size // WORD), np.int32)
        matcher = self._caught_up()
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error() and WORN_OUT in matcher.get_error() and self._renew():
            matcher = self._matcher
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error():
            return np.zeros(size, np.bool_)
        bits = np.unpackbits(words.view(np.uint8), count=size, bitorder="little")
        return bits.view(np.bool_)

    def _caught_up(self) -> LLMatcher:
        if not self._is_own:
            self._matcher, self._is_own = self._matcher.deep_copy(), True
        if self._unread:
            self._matcher.consume_tokens(self._unread)
            self._read += self._unread
            self._unread.clear()
            if self._matcher.is_error():  # of tokens that a mask let come: no more states for them
                self._renew()
        return self._matcher

    def _renew(self) -> bool:
        """Go the same way anew where others have worn the grammar out; who alone is too much for it is not helped."""
        beginning = self._grammar.renewed(self._beginning)
        if beginning is None:
            return False
        self._beginning, self._matcher = beginning, beginning.deep_copy()
        for token in self._read:  # one by one: what a step may cost is bounded
            self._matcher.consume_token(token)
        return True
