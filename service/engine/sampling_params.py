"""What sampling is asked for, and what it knows of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class SamplingParams:
    """How one sequence's tokens are chosen; temperature 0 is greedy, and 0 or 1 switch the filters off."""

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    logprobs: int | None = None  # how many alternatives to report beside the chosen token; None: report nothing
    prompt_logprobs: int | None = None  # the same for the prompt's tokens

    @property
    def counts_tokens(self) -> bool:
        """Whether a token's logit depends on whether, or how often, it was there before."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


@dataclass
class Row:
    """What sampling knows of one row; `output_ids` is a list that its owner appends to."""

    params: SamplingParams
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    rng: np.random.Generator

    def counts(self) -> tuple[Ids, Ids]:
        """Return the different ids of prompt and output, and how often each is in the output, (ids,) each.

        A step counts only what has come since the last.
        """
        return self._counts.after(self.output_ids)

    @cached_property
    def bias(self) -> tuple[Ids, NDArray[np.float32]]:
        """The biased ids, and what is added to their logits, (entries,) each."""
        bias = self.params.logit_bias
        return np.array(list(bias), np.int64), np.array(list(bias.values()), np.float32)

    @cached_property
    def stop_ids(self) -> Ids:
        """The ids that end the sequence, in no particular order."""
        return np.array(list(self.params.stop_ids), np.int64)

    @cached_property
    def _counts(self) -> _Counts:
        return _Counts(self.prompt_ids, self.params.max_tokens)


class _Counts:
    """The different ids of one row in order of appearance, and how often the output has them."""

    def __init__(self, prompt_ids: Sequence[int], max_tokens: int) -> None:
        known = list(dict.fromkeys(prompt_ids))
        self._places = {token: place for place, token in enumerate(known)}
        self._ids = np.zeros(len(known) + max_tokens, np.int64)
        self._ids[: len(known)] = known
        self._counts = np.zeros_like(self._ids)
        self._counted = 0  # of the output

    def after(self, output_ids: Sequence[int]) -> tuple[Ids, Ids]:
        for token in output_ids[self._counted :]:
            place = self._places.setdefault(token, len(self._places))
            self._ids[place] = token
            self._counts[place] += 1
        self._counted = len(output_ids)
        return self._ids[: len(self._places)], self._counts[: len(self._places)]
