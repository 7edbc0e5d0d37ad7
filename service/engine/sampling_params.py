"""What sampling is asked for, and what it knows of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from service.engine.constraints import FREE, Constraints, ConstraintState


@dataclass(frozen=True)
class SamplingParams:
    """How one sequence's tokens are chosen; temperature 0 is greedy, and 0 or 1 switch the filters off."""

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    constraints: Constraints = FREE
    logprobs: int | None = None  # how many alternatives to report beside the chosen token; None: report nothing
    prompt_logprobs: int | None = None  # the same for the prompt's tokens


@dataclass
class Row:
    """What sampling knows of one row; `output_ids` is a list that its owner appends to."""

    params: SamplingParams
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    rng: np.random.Generator

    def constraint_state(self) -> ConstraintState | None:
        """Return what its constraints know of it up to now; None where there are none."""
        state = self._state
        if state is not None:
            state.follow(self.output_ids)
        return state

    @cached_property
    def _state(self) -> ConstraintState | None:
        params = self.params
        if params.constraints == FREE:
            return None
        return ConstraintState(params.constraints, self.prompt_ids, params.max_tokens, params.stop_ids)
