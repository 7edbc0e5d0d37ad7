"""One decoding in the engine: what it was asked, what it has produced, and where its slots are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from service.engine.beam_search import BeamParams, BeamSearch, Candidates, Hypothesis
from service.engine.sampling import Row, SampledToken, SamplingParams

FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class Output:
    """What a sequence has produced since the last one; the last carries the finish reason (and a search's result).

    A search's tokens come as soon as they are certain; in the end they are the best hypothesis. `prompt` holds the
    prompt's tokens with their log probabilities, where these were asked for.
    """

    tokens: list[SampledToken] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    hypotheses: list[Hypothesis] = field(default_factory=list)
    prompt: list[SampledToken] = field(default_factory=list)


class Mailbox:
    """A one-place box between engine and reader; outputs that wait for a slow reader are merged."""

    def __init__(self) -> None:
        self._output: Output | None = None
        self._reader: asyncio.Future[None] | None = None

    def put(self, output: Output) -> None:
        """Leave an output, or add it to the one that waits."""
        if (waiting := self._output) is not None:
            tokens, prompt = [*waiting.tokens, *output.tokens], [*waiting.prompt, *output.prompt]
            output = Output(tokens, output.finish_reason, output.hypotheses, prompt)
        self._output = output
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> Output:
        """Wait for an output and take it."""
        if self._output is None:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        output, self._output = self._output, None
        assert output is not None, "bug: the mailbox was opened by two readers"
        return output


class Sampling:
    """Greedy or sampled decoding: one row, one token a step."""

    width = 1

    def __init__(self, params: SamplingParams, prompt_ids: Ids[int]) -> None:
        self.params = params
        self.output_ids: list[int] = []
        self.row = Row(params, prompt_ids, self.output_ids, np.random.default_rng(params.seed))

    def last_tokens(self) -> list[int]:
        """Return the newest token of every row, none before the first step."""
        return self.output_ids[-1:]

    def advance(self, token: SampledToken) -> tuple[list[int], Output | None]:
        """Take the chosen token; return the rows to go on with, and what the reader gets."""
        if token.id in self.params.stop_ids:
            return [], Output(finish_reason="stop")
        self.output_ids.append(token.id)
        if len(self.output_ids) == self.params.max_tokens:
            return [], Output([token], "length")
        return [0], Output([token])


class Search:
    """Beam search: up to beam_size rows."""

    def __init__(self, params: BeamParams, end: int) -> None:
        self.params = params
        self.width = params.beam_size
        self._search = BeamSearch(params, end)

    @property
    def beams(self) -> list[list[int]]:
        """The output ids of every beam; these lists are never changed, only replaced."""
        return self._search.beams

    def last_tokens(self) -> list[int]:
        """Return the newest token of every beam, none before the first step."""
        return [beam[-1] for beam in self._search.beams if beam]

    def advance(self, continuations: Candidates) -> tuple[list[int], Output | None]:
        """Take the likeliest continuations; return the rows the new beams continue, and what the reader gets."""
        parents = self._search.advance(continuations)
        tokens = [SampledToken(token) for token in self._search.newly_agreed()]
        if not self._search.is_finished:
            return parents, Output(tokens) if tokens else None
        hypotheses = self._search.hypotheses()
        reason: FinishReason = "stop" if hypotheses[0].finish_reason == "stop" else "length"
        return [], Output(tokens, reason, hypotheses)


@dataclass(eq=False)
class Sequence:
    """A decoding from admission to its end; changed by the scheduler and its slots, between steps."""

    prompt_ids: list[int]  # the decoder's: a prompt, or a translation's start token
    decoding: Sampling | Search
    source_ids: list[int] | None = None  # a translation's
    slots: list[int] = field(default_factory=list)
    computed: int = 0  # tokens of every row in the cache
    has_source: bool = False  # a translation's source is in the cache
    is_aborted: bool = False
    prompt_tokens: list[SampledToken] = field(default_factory=list)  # left by prefill: behind the first, with logprobs
    mailbox: Mailbox = field(default_factory=Mailbox)
    arrived_at: float = field(default_factory=time.perf_counter)
    admitted_at: float | None = None
    last_token_at: float | None = None

    @property
    def waiting_tokens(self) -> int:
        """How many tokens its admission has to compute."""
        return len(self.prompt_ids) + len(self.source_ids or ())

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
            self.mailbox.put(replace(output, prompt=self.prompt_tokens) if self.prompt_tokens else output)
            self.prompt_tokens = []
        return rows
