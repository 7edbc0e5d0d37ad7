"""Whether a model is to think before it answers, in the words of all servers that take it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from service.api.protocols.nulls import NotDone, NullsLeftOut
from service.api.protocols.openai.refused import ASKS_NOTHING
from service.errors import InvalidRequest

NO_EFFORT = "none"  # the effort of a model that does not think


class Reasoning(NullsLeftOut):
    """How to think: models here do it, or not, as their chat template says (OpenAI; `enabled` is OpenRouter's)."""

    effort: str | None = Field(None, description="only none, for which the template has enable_thinking: false")
    enabled: bool | None = Field(None, description="the same as enable_thinking")
    max_tokens: NotDone = None

    @property
    def thinks(self) -> bool | None:
        """Whether to think; None: as the template says."""
        return False if self.effort == NO_EFFORT else self.enabled

    def check(self) -> None:
        """Refuse an effort that no template hears of; raises `InvalidRequest`."""
        if self.effort not in (None, *ASKS_NOTHING):
            raise InvalidRequest("reasoning.effort is not supported; leave it out", "reasoning")


class Thinking(NullsLeftOut):
    """The same in the words of Anthropic, DeepSeek and GLM."""

    type: Literal["enabled", "disabled"]
    budget_tokens: NotDone = None
