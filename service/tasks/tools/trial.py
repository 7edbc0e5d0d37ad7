"""A chat template, tried with a conversation in which a tool is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Template

from model.package.chat import TemplateError, TooMuch, render

SECONDS, CHARACTERS = 1.0, 100_000  # of a trial
NAME, CITY, ID = "weather", "Oslo", "call12345"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALLING: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"id": ID, "type": "function", "function": {"name": NAME, "arguments": {"city": CITY}}}],
}
ANSWER = {"role": "tool", "name": NAME, "tool_call_id": ID, "content": "rain"}


@dataclass(frozen=True)
class Trial:
    """A template, tried with a conversation."""

    template: Template
    tokens: Mapping[str, str]
    takes_tools: bool

    def shows_tools(self) -> bool:
        """Whether it writes something else with a tool than without, as far as a user's message alone can tell."""
        text = self.text([])
        return text is None or text != replace(self, takes_tools=False).text([])

    def writes_whole(self, calling: dict[str, Any], without: dict[str, Any], *, is_answered: bool) -> bool:
        """Whether it writes a call with its arguments, no values as Python shows them, and no None for its content.

        `without` is the same without a content.
        """
        answer = [ANSWER] if is_answered else []
        text = self.text([calling, *answer])
        if text is None or CITY not in text or f"'{CITY}'" in text:
            return False
        return text.count("None") <= (self.text([without, *answer]) or "").count("None")

    def text(self, messages: list[dict[str, Any]], *, asks: bool = True) -> str | None:
        """Return a conversation that goes on with these messages, as the template writes it, or None if it refuses.

        It `asks` for an assistant's message behind them.
        """
        values = {
            **self.tokens,
            "messages": [{"role": "user", "content": "Hello!"}, *messages],
            "tools": [TOOL] if self.takes_tools else None,
            "documents": None,
            "add_generation_prompt": asks,
        }
        try:
            return render(self.template, values, seconds=SECONDS, characters=CHARACTERS)
        except (TemplateError, TooMuch):
            return None
