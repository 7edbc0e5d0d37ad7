"""What one step computes: prompts and sources, or a token for every row; and what is chosen then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from service.engine.beam_search import Candidates
from service.engine.kv_cache import Copy
from service.engine.logprobs import SampledToken
from service.engine.prefix_cache import Block
from service.engine.sequence import Sequence

StepChoice = SampledToken | list[SampledToken] | Candidates  # a list where there was a draft


@dataclass(frozen=True)
class Chunk:
    """A part of a sequence's prompt to compute, behind what is computed, and what else goes with it."""

    sequence: Sequence
    tokens: int
    restored: list[Block] = field(default_factory=list)  # put into the slot first: the prompt's known beginning
    stored: list[tuple[int, Block]] = field(default_factory=list)  # taken from the slot after: position, block
    sharers: list[Sequence] = field(default_factory=list)  # have the same prompt, and get a copy of its slot


class Extent(NamedTuple):
    """How much of the cache all running sequences take."""

    slots: int
    live: int  # slots that hold data before the step, and all below
    length: int  # tokens of the longest, those of this step included
    source_length: int


@dataclass(frozen=True)
class Prefill:
    """Prompts or sources to compute."""

    chunks: list[Chunk]
    copies: list[Copy]
    extent: Extent
    kind: ClassVar[Literal["prefill"]] = "prefill"

    @property
    def sequences(self) -> list[Sequence]:
        """All that are brought forward, those who share another's chunk included."""
        return [sequence for chunk in self.chunks for sequence in (chunk.sequence, *chunk.sharers)]

    def work(self) -> Counter[str]:
        """Return how many tokens of each client it computes; those who share a chunk are one client's."""
        work: Counter[str] = Counter()
        for chunk in self.chunks:
            work[chunk.sequence.permit.client] += max(1, chunk.tokens + len(chunk.sequence.source_ids or ()))
        return work


@dataclass(frozen=True)
class Decode:
    """One token for every row of the sequences; unless others are between them, their slots are 0 … n−1.

    `drafts`: what some may go on with behind that.
    """

    sequences: list[Sequence]
    copies: list[Copy]
    extent: Extent
    drafts: Mapping[Sequence, list[int]] = field(default_factory=dict)
    kind: ClassVar[Literal["decode"]] = "decode"

    def work(self) -> Counter[str]:
        """Return how many rows of each client it computes."""
        work: Counter[str] = Counter()
        for sequence in self.sequences:
            work[sequence.permit.client] += len(sequence.slots)
        return work


Batch = Prefill | Decode
