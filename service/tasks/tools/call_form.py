"""The calls of tools that a conversation has, in the form that the model's template wants them in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from service.errors import ServiceError
from service.json_values import check_values
from service.tasks.tools.trial import CALLING, Trial

DEEPEST = 100  # lists and objects in one another, in a call's arguments


@dataclass(frozen=True)
class CallForm:
    """What a template is given of an assistant's message that calls a tool."""

    has_values: bool = True  # the arguments as values, rather than as the JSON that OpenAI's clients send of them
    has_content: bool = False  # None where nothing is said beside the call, rather than no content at all

    @classmethod
    def of(cls, trial: Trial) -> CallForm:
        """Return the first form in which a template writes a call whole, and nothing as Python would show it.

        Most write values as JSON themselves; some put the text of the arguments behind another, or ask whether the
        content is none.
        """
        forms = [cls(has_values, has_content) for has_content in (False, True) for has_values in (True, False)]
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


def _as_values(arguments: Any) -> Any:
    """Return what JSON says, unless it is no object, too deep, or of more values than a body may have."""
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():  # what is put together of a stream's pieces, where there are none
        return {}
    try:
        check_values(arguments.encode())  # those of a text in a body have not been counted
        values = json.loads(arguments)
    except (ServiceError, ValueError):
        return arguments
    return values if isinstance(values, dict) and not _is_deep(values) else arguments


def _as_text(arguments: Any) -> Any:
    if isinstance(arguments, str):
        return arguments if arguments.strip() else "{}"
    return json.dumps(arguments, ensure_ascii=False)


def _is_deep(value: Any) -> bool:
    """Whether lists and objects lie in one another more than `DEEPEST` times."""
    layer, depth = [value], 0
    while layer and depth <= DEEPEST:
        inner = [each.values() if isinstance(each, dict) else each for each in layer if isinstance(each, dict | list)]
        layer, depth = [each for some in inner for each in some], depth + 1
    return bool(layer)
