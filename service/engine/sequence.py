"""One decoding in the engine: what it was asked, what it has produced, and where its slots are."""

from __future__ import annotations

import time
from collections import abc
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from service.engine.admission import Permit
from service.engine.beam_search import BeamParams, BeamSearch, Candidates
from service.engine.constraints import FREE, ConstraintState
from service.engine.drafting import Lookup
from service.engine.logprobs import SampledToken
from service.engine.mailbox import Mailbox, Output
from service.engine.observer import Ending
from service.engine.sampling_params import Row, SamplingParams


class Sampling:
    """Greedy or sampled decoding: one row, one token a step."""

    width = 1

    def __init__(
        self, params: SamplingParams, prompt_ids: abc.Sequence[int], source_ids: abc.Sequence[int] | None = None
    ) -> None:
        self.params = params
        self.output_ids: list[int] = []
        self.row = Row(params, prompt_ids, self.output_ids, np.random.default_rng(params.seed))
        # What constraints ask of a token depends on all before it, which a draft's are not yet.
        known = [*source_ids, *prompt_ids] if source_ids else prompt_ids
        self._lookup = Lookup(known, self.output_ids) if params.constraints == FREE else None

    def last_tokens(self) -> list[int]:
        """Return the newest token of every row, none before the first step."""
        return self.output_ids[-1:]

    def draft(self, least: float) -> list[int]:
        """Return tokens that are likely to come next, each with a chance of at least `least`.

        One fewer than may still come at all, as a step adds a token of its own behind them.
        """
        most = self.params.max_tokens - len(self.output_ids) - 1
        return self._lookup.draft(most, least) if self._lookup is not None and most > 0 else []

    def continues(self, token: SampledToken) -> bool:
        """Whether another token could come behind this one."""
        return token.id not in self.params.stop_ids

    def advance(self, token: SampledToken) -> tuple[list[int], Output | None]:
        """Take the chosen token; return the rows to go on with, and what the reader gets."""
        is_last = len(self.output_ids) + 1 == self.params.max_tokens
        if token.end == "grammar":
            return [], Output(finish_reason="grammar")
        if token.id in self.params.stop_ids:
            was_forced = is_last and token.id == self.params.constraints.forced_end
            return [], Output(finish_reason="length" if was_forced else "stop", end=token)
        self.output_ids.append(token.id)
        if token.end == "stop":
            return [], Output([token], "stop")
        return ([], Output([token], "length")) if is_last else ([0], Output([token]))


class Search:
    """Beam search: up to beam_size rows."""

    def __init__(self, params: BeamParams, end: int, prompt_ids: abc.Sequence[int] = ()) -> None:
        self.params = params
        self.width = params.beam_size
        self._search = BeamSearch(params, end)
        self._states: list[ConstraintState] | None = None  # of every beam
        if params.constraints != FREE:
            self._states = [ConstraintState(params.constraints, prompt_ids, params.max_tokens, params.stop_ids | {end})]

    @property
    def beams(self) -> list[list[int]]:
        """The output ids of every beam; these lists are never changed, only replaced."""
        return self._search.beams

    @property
    def candidates(self) -> int:
        """How many continuations of each row it looks at."""
        return self._search.candidates

    def constraint_states(self) -> abc.Sequence[ConstraintState | None]:
        """Return what is known of every beam for its constraints; None where there are none."""
        return self._states or [None] * len(self.beams)

    def last_tokens(self) -> list[int]:
        """Return the newest token of every beam, none before the first step."""
        return [beam[-1] for beam in self._search.beams if beam]

    def advance(self, continuations: Candidates) -> tuple[list[int], Output | None]:
        """Take the likeliest continuations; return the rows the new beams continue, and what the reader gets."""
        states = self._states

        def completes(row: int, token: int) -> bool:
            assert states is not None, "bug: without constraints there is no grammar"
            return states[row].is_complete_with(token)

        has_grammar = self.params.constraints.grammar is not None
        parents = self._search.advance(continuations, completes if has_grammar else None)
        if states is not None:
            rows = zip(parents, self.beams, strict=True)
            self._states = [states[parent].continued(beam[-1]) for parent, beam in rows]
        tokens = [SampledToken(token) for token in self._search.newly_agreed()]
        if not self._search.is_finished:
            return parents, Output(tokens) if tokens else None
        hypotheses = self._search.hypotheses()
        return [], Output(tokens, hypotheses[0].finish_reason, hypotheses)


class Identity:
    """A client's prompt and source, and how many log probabilities of the prompt are wanted.

    It is hashed once, as prompts are long.
    """

    __slots__ = ("_hash", "_ids", "_others")

    def __init__(self, client: str, prompt_ids: list[int], source_ids: list[int], logprobs: int | None) -> None:
        self._ids, self._others = (prompt_ids, source_ids), (client, logprobs)
        self._hash = hash((tuple(prompt_ids), tuple(source_ids), *self._others))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity) or self._hash != other._hash:
            return False
        return self._others == other._others and self._ids == other._ids


@dataclass(eq=False)
class Sequence:
    """A decoding from admission to its end; changed by the scheduler and its slots, between steps."""

    prompt_ids: list[int]  # the decoder's: a prompt, or a translation's start token
    decoding: Sampling | Search
    source_ids: list[int] | None = None  # a translation's
    permit: Permit = field(default_factory=Permit.of_one)  # its request's
    place: int = 0  # among its request's sequences
    repeats_prompt: bool = False  # of another of its request, with which it is mostly computed
    mailbox: Mailbox = field(default_factory=Mailbox)  # its request's
    slots: list[int] = field(default_factory=list)
    computed: int = 0  # tokens of every row in the cache
    has_source: bool = False  # a translation's source is in the cache
    turn: int = 0  # the last that it had, where several clients have turns
    is_aborted: bool = False
    prompt_tokens: list[SampledToken] = field(default_factory=list)  # left by prefill: behind the first, with logprobs
    arrived_at: float = field(default_factory=time.perf_counter)
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    ending: Ending | None = None

    @property
    def width(self) -> int:
        """How many slots it may come to hold."""
        return self.decoding.width

    @property
    def input_tokens(self) -> int:
        """How many tokens it reads."""
        return len(self.prompt_ids) + len(self.source_ids or ())

    @property
    def waiting_tokens(self) -> int:
        """How many tokens its admission has to compute."""
        return 0 if self.repeats_prompt else self.input_tokens

    @cached_property
    def identity(self) -> Identity:
        """What it has in common with those that can share its prefill."""
        logprobs = self.decoding.params.prompt_logprobs if isinstance(self.decoding, Sampling) else None
        return Identity(self.permit.client, self.prompt_ids, self.source_ids or [], logprobs)

    @property
    def decoded(self) -> int:
        """How many steps have decoded it, each a token of every row."""
        return max(0, self.computed - (len(self.prompt_ids) - 1))

    @property
    def longest(self) -> int:
        """How many tokens its rows may come to hold."""
        return len(self.prompt_ids) + self.decoding.params.max_tokens

    @property
    def prefilled_ids(self) -> list[int]:
        """What prefill computes: all of the prompt but the last token, which the first decode step feeds."""
        return self.prompt_ids[:-1]

    @property
    def is_prefilled(self) -> bool:
        """Whether its source and all but the last of its prompt are in the cache, so that it can decode."""
        return self.computed >= len(self.prompt_ids) - 1 and (self.source_ids is None or self.has_source)

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether its prompt's own probabilities were asked for, so that every token of it must be computed."""
        return isinstance(self.decoding, Sampling) and self.decoding.params.prompt_logprobs is not None

    def next_tokens(self) -> list[int]:
        """Return the token that each row feeds next."""
        return self.decoding.last_tokens() or [self.prompt_ids[-1]]

    def advance(self, choice: SampledToken | Candidates) -> list[int]:
        """Take a step's choice and tell the reader; return the rows that go on, in order, none when it has ended."""
        if isinstance(self.decoding, Sampling):
            assert isinstance(choice, SampledToken)
            rows, output = self.decoding.advance(choice)
        else:
            assert isinstance(choice, Candidates)
            rows, output = self.decoding.advance(choice)
        if output is not None:
            # The prompt's own tokens go out with the first of the output.
            output = output._replace(prompt=self.prompt_tokens) if self.prompt_tokens else output
            self.mailbox.put(self.place, output)
            self.prompt_tokens = []
        return rows

    def fail(self) -> None:
        """End it, and tell the reader."""
        self.is_aborted = True
        self.mailbox.put(self.place, Output(finish_reason="error"))
