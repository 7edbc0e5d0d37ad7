"""Whether a model is to think before it answers, in the words of all servers that take it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from service.api.protocols.nulls import NotDone, NullsLeftOut
from service.api.protocols.openai.refused import ASKS_NOTHING, is_among
from service.errors import InvalidRequest

NO_EFFORT = "none"  # the effort of a model that does not think


def asks_for_reasoning(value: object) -> bool:
    """Tell whether a `reasoning` asks for any, and not only how it is to be told."""
    said = value if isinstance(value, dict) else {"effort": value}
    return any(not is_among(said.get(name), (None, *ASKS_NOTHING)) for name in ("effort", "enabled", "max_tokens"))


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
        if not is_among(self.effort, (None, *ASKS_NOTHING)):
            raise InvalidRequest("reasoning.effort is not supported; leave it out", "reasoning")


class Thinking(NullsLeftOut):
    """The same in the words of Anthropic, DeepSeek and GLM."""

    type: Literal["enabled", "disabled"]
    budget_tokens: NotDone = None


class WhetherToThink(NullsLeftOut):
    """What a request says of it, in any of these words."""

    enable_thinking: bool | None = Field(None, description="the same said in chat_template_kwargs, as others take it")
    reasoning: Reasoning = Reasoning()
    thinking: Thinking | None = Field(None, description="another name of enable_thinking")
    think: bool | None = Field(None, description="another name of enable_thinking")

    @model_validator(mode="before")
    @classmethod
    def _plain_words_of_thinking(cls, given: Any) -> Any:
        """Leave out what asks for nothing, and take true and false for what they say."""
        if not isinstance(given, dict):
            return given
        said = {name: given[name] for name in ("reasoning", "thinking", "think") if name in given}
        plain = {name: each for name, each in said.items() if isinstance(each, bool) or is_among(each, ASKS_NOTHING)}
        switched = [each is True for each in plain.values() if isinstance(each, bool) or each == NO_EFFORT]
        left = {name: value for name, value in given.items() if name not in plain}
        return {**({"enable_thinking": switched[0]} if switched else {}), **left}

    @property
    def thinks(self) -> bool | None:
        """Whether to think, by the first that says so; None: as the template says."""
        effort = (self.model_extra or {}).get("reasoning_effort")  # which is passed over, or refused
        said = (
            self.enable_thinking,
            False if effort == NO_EFFORT else None,
            self.reasoning.thinks,
            None if self.thinking is None else self.thinking.type == "enabled",
            self.think,
        )
        return next((each for each in said if each is not None), None)
