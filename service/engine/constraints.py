"""What changes logits before a token is chosen, and what is known of a row for it.

The rules, and the order in which they come, are those of `transformers`' logits processors.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

import numpy as np

from service.engine.arrays import Floats, Ids
from service.engine.grammar import Bits, Grammar

NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Constraints:
    """How the tokens of a sequence depend on those before, and which may come; by default nothing and all."""

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0  # before the end may come
    no_repeat_ngram_size: int = 0  # rows of so many tokens come once, in prompt and output together
    suppress_ids: frozenset[int] = frozenset()  # never come
    begin_suppress_ids: frozenset[int] = frozenset()  # do not come first; behind a forced start, second
    bad_words: tuple[tuple[int, ...], ...] = ()  # rows of tokens that never come
    forced_start: int | None = None  # the first token behind a prompt of one
    forced_end: int | None = None  # the last of max_tokens
    grammar: Grammar | None = None  # that the output follows, to its end
    renormalize: bool = False  # a search's log probabilities are those among the tokens that may come

    @property
    def counts_tokens(self) -> bool:
        """Whether a token's logit depends on whether, or how often, it was there before."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)

    @cached_property
    def may_add(self) -> bool:
        """Whether a search's log probabilities may come to more than 0."""
        adds = min(self.presence_penalty, self.frequency_penalty) < 0 or max(self.logit_bias.values(), default=0) > 0
        return adds and not self.renormalize

    @cached_property
    def bias(self) -> tuple[Ids, Floats]:
        """The biased ids, and what is added to their logits, (entries,) each."""
        return np.array(list(self.logit_bias), np.int64), np.array(list(self.logit_bias.values()), np.float32)

    def never_allowed(self, stop_ids: frozenset[int]) -> frozenset[int]:
        """Return the ids that are suppressed, or bad words by themselves; a bad word that ends the output may come."""
        words = {word[0] for word in self.bad_words if len(word) == 1}
        return self.suppress_ids | (words - stop_ids)

    @cached_property
    def words_ending(self) -> Mapping[int, list[tuple[tuple[int, ...], int]]]:
        """Of bad words of several tokens, by the last but one: what stands before the last, and the last."""
        found: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        for word in self.bad_words:
            if len(word) > 1:
                found.setdefault(word[-2], []).append((word[:-1], word[-1]))
        return found


FREE = Constraints()


class ConstraintState:
    """One row as its constraints see it: the ids that it has, and how often; grows by a token a step."""

    def __init__(
        self, constraints: Constraints, prompt_ids: Sequence[int], max_tokens: int, stop_ids: frozenset[int]
    ) -> None:
        self.constraints = constraints
        self._prompt_tokens, self._max_tokens = len(prompt_ids), max_tokens
        self._ids = np.empty(len(prompt_ids) + max_tokens, np.int64)
        self._ids[: len(prompt_ids)] = prompt_ids
        self._length = len(prompt_ids)
        self._counts = _Counts(prompt_ids, max_tokens) if constraints.counts_tokens else None
        self._never = _array(constraints.never_allowed(stop_ids))
        self._first = _array(constraints.begin_suppress_ids)
        self._stops, self._stop_ids = stop_ids, _array(stop_ids)
        self._matcher = constraints.grammar.matcher() if constraints.grammar is not None else None
        self.is_stuck = False  # nothing may come that the grammar asks for

    def follow(self, output_ids: Sequence[int]) -> None:
        """Take over what has come since the last time."""
        for token in output_ids[self._output_tokens :]:
            self._add(token)

    def continued(self, token: int) -> Self:
        """Return the row that continues this one, which stays as it is."""
        other = copy.copy(self)
        other._ids = self._ids.copy()
        other._counts = self._counts and self._counts.copy()
        other._matcher = self._matcher and self._matcher.copy()
        other._add(token)
        return other

    def is_complete_with(self, token: int) -> bool:
        """Whether it would have its grammar's whole form with a token behind it; it stays as it is."""
        if self._matcher is None or self.forced() is not None:
            return self.is_complete
        matcher = self._matcher.copy()
        matcher.add(token)
        return matcher.is_complete

    def take(self, token: int) -> Literal["stop", "grammar"] | None:
        """Go on by a token that was chosen; return how the output ends with it, where its grammar says so."""
        if self._matcher is None or self.forced() is not None:
            return None
        if self.is_stuck:
            return "grammar"
        if token in self._stops:
            return None  # it ends here; the grammar knows one end alone, and would be worn out by another
        self._add(token)
        return "stop" if self.is_complete else None

    @property
    def is_complete(self) -> bool:
        """Whether it has its grammar's whole form, so that nothing may follow."""
        return self._matcher is not None and self._matcher.is_complete

    def allowed(self) -> Bits | None:
        """Return which ids may come now by the grammar and all else (vocab_size,); None where there is no grammar.

        Where none may, the row is stuck: only the end is left, so that there is something to choose.
        """
        if self._matcher is None or self.forced() is not None:
            return None
        assert self.constraints.grammar is not None
        bits, end = self._matcher.allowed(), self.constraints.grammar.end
        bits[self._stop_ids] = bits[end]
        bits[self.banned()] = False
        self.is_stuck = not bits.any()
        bits[end] |= self.is_stuck
        return bits

    def counts(self) -> tuple[Ids, Ids]:
        """Return the different ids of prompt and output, and how often each is in the output, (ids,) each."""
        assert self._counts is not None, "bug: nothing that is asked for depends on counts"
        return self._counts.ids_and_counts()

    def forced(self) -> int | None:
        """Return the token that must come now, if one must."""
        if self._length == 1 and self.constraints.forced_start is not None:
            return self.constraints.forced_start
        return self.constraints.forced_end if self._output_tokens == self._max_tokens - 1 else None

    def banned(self) -> Ids:
        """Return the ids that may not come now, in no order, some perhaps twice."""
        arrays = [ids for ids in self._banned() if len(ids)]
        return np.concatenate(arrays) if arrays else NO_IDS

    def _banned(self) -> Iterator[Ids]:
        constraints = self.constraints
        yield self._never
        # What has come to its grammar's end is not to go on.
        if self._output_tokens < constraints.min_tokens and not self.is_complete:
            yield self._stop_ids
        if self._output_tokens == int(constraints.forced_start is not None and self._prompt_tokens == 1):
            yield self._first
        if constraints.no_repeat_ngram_size:
            yield self._repeating(constraints.no_repeat_ngram_size)
        if constraints.words_ending and self._length:
            yield self._ending_words()

    def _repeating(self, size: int) -> Ids:
        """Return the ids that would make the last `size` ones a row that was there before."""
        ids = self._ids[: self._length]
        prefix = ids[len(ids) + 1 - size :]
        starts = np.arange(max(0, len(ids) + 1 - size))
        for offset, token in enumerate(prefix.tolist()):
            starts = starts[ids[starts + offset] == token]
            if not len(starts):  # as mostly, after one or two
                return NO_IDS
        return ids[starts + size - 1]

    def _ending_words(self) -> Ids:
        """Return the ids that would end a bad word of several tokens."""
        words = self.constraints.words_ending.get(int(self._ids[self._length - 1]), [])
        longest = max((len(before) for before, _ in words), default=0)
        last = self._ids[max(0, self._length - longest) : self._length].tolist()
        return _array(end for before, end in words if last[-len(before) :] == list(before))

    @property
    def _output_tokens(self) -> int:
        return self._length - self._prompt_tokens

    def _add(self, token: int) -> None:
        if self._matcher is not None and self.forced() is None:
            self._matcher.add(token)
        self._ids[self._length] = token
        self._length += 1
        if self._counts is not None:
            self._counts.add(token)


class _Counts:
    """The different ids of one row in order of appearance, and how often the output has them."""

    def __init__(self, prompt_ids: Sequence[int], max_tokens: int) -> None:
        known = list(dict.fromkeys(prompt_ids))
        self._places = {token: place for place, token in enumerate(known)}
        self._ids = np.zeros(len(known) + max_tokens, np.int64)
        self._ids[: len(known)] = known
        self._counts = np.zeros_like(self._ids)

    def add(self, token: int) -> None:
        place = self._places.setdefault(token, len(self._places))
        self._ids[place] = token
        self._counts[place] += 1

    def copy(self) -> Self:
        other = copy.copy(self)
        other._places, other._ids, other._counts = self._places.copy(), self._ids.copy(), self._counts.copy()
        return other

    def ids_and_counts(self) -> tuple[Ids, Ids]:
        return self._ids[: len(self._places)], self._counts[: len(self._places)]


def _array(ids: Iterator[int] | frozenset[int]) -> Ids:
    return np.fromiter(ids, np.int64)
