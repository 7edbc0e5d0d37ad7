"""The calls of tools that a conversation has, in the form that the model's template wants them in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Template

from model.package.chat import TemplateError, TooMuch, render

DEEPEST = 100  # lists and objects in one another, in a call's arguments
SECONDS, CHARACTERS = 1.0, 100_000  # of a trial
CITY = "Oslo"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALLING: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [
        {"id": "call12345", "type": "function", "function": {"name": "weather", "arguments": {"city": CITY}}}
    ],
}
ANSWER = {"role": "tool", "name": "weather", "tool_call_id": "call12345", "content": "rain"}


@dataclass(frozen=True)
class CallForm:
    """What a template is given of an assistant's message that calls a tool."""

    has_values: bool = True  # the arguments as values, rather than as the JSON that OpenAI's clients send of them
    has_content: bool = False  # None where nothing is said beside the call, rather than no content at all

    @classmethod
    def of(cls, template: Template, tokens: Mapping[str, str], *, takes_tools: bool) -> CallForm:
        """Return the first form in which a template writes a call whole, and nothing as Python would show it.

        Most write values as JSON themselves; some put the text of the arguments behind another, or ask whether the
        content is none.
        """
        forms = [cls(has_values, has_content) for has_content in (False, True) for has_values in (True, False)]
        trial = _Trial(template, tokens, takes_tools)
        for is_answered in (True, False):  # some templates know no answers of tools
            for form in forms:
                without = cls(form.has_values).given(CALLING)
                if trial.writes_whole(form.given(CALLING), without, is_answered=is_answered):
                    return form
        return cls()

    def given(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return an assistant's message as the template is to see it."""
        calls = message.get("tool_calls")
        if not isinstance(calls, list):
            return message
        content = {"content": None} if self.has_content and "content" not in message else {}
        return {**message, **content, "tool_calls": [self._call(call) for call in calls]}

    def _call(self, call: Any) -> Any:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or "arguments" not in function:
            return call
        arguments = function["arguments"]
        form = _as_values(arguments) if self.has_values else _as_text(arguments)
        return {**call, "function": {**function, "arguments": form}}


@dataclass(frozen=True)
class _Trial:
    """A template, tried with a conversation."""

    template: Template
    tokens: Mapping[str, str]
    takes_tools: bool

    def writes_whole(self, calling: dict[str, Any], without: dict[str, Any], *, is_answered: bool) -> bool:
        """Whether it writes a call with its arguments, no values as Python shows them, and no None for its content.

        `without` is the same without a content.
        """
        answer = [ANSWER] if is_answered else []
        text = self._text([calling, *answer])
        if text is None or CITY not in text or f"'{CITY}'" in text:
            return False
        return text.count("None") <= (self._text([without, *answer]) or "").count("None")

    def _text(self, messages: list[dict[str, Any]]) -> str | None:
        values = {
            **self.tokens,
            "messages": [{"role": "user", "content": "Hello!"}, *messages],
            "tools": [TOOL] if self.takes_tools else None,
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return render(self.template, values, seconds=SECONDS, characters=CHARACTERS)
        except (TemplateError, TooMuch):
            return None


def _as_values(arguments: Any) -> Any:
    """Return what JSON says, unless it is too deep, or no object."""
    if not isinstance(arguments, str):
        return arguments
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return values if isinstance(values, dict) and not _is_deep(values) else arguments


def _as_text(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _is_deep(value: Any) -> bool:
    """Whether lists and objects lie in one another more than `DEEPEST` times."""
    layer, depth = [value], 0
    while layer and depth <= DEEPEST:
        inner = [each.values() if isinstance(each, dict) else each for each in layer if isinstance(each, dict | list)]
        layer, depth = [each for some in inner for each in some], depth + 1
    return bool(layer)
