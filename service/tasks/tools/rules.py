"""The grammar of an output in which tools are called, in llguidance's form of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from service.errors import InvalidRequest
from service.tasks.grammars import json_rule
from service.tasks.tools.functions import Function
from service.tasks.tools.syntax import THOUGHT, CallSyntax

ANYTHING = r"(.|\n)*"


def rules_of(syntax: CallSyntax, functions: Sequence[Function], *, must_call: bool, several: bool) -> str:
    """Return the rules of an output that calls some of these functions, or may say something else or more before.

    As soon as a call has begun, it has to become one of these, with arguments as they are described. Raises
    `InvalidRequest` for parameters that no grammar can follow.
    """
    more = f" ({_text(syntax.between)} call)*" if several and syntax.between is not None else ""
    rules = [f"call: {_text(syntax.head)} function", f"function: {' | '.join(_names('function', functions))}"]
    if must_call:
        begin, end = map(_pattern, THOUGHT)
        rules.append(f"start: {'(thought SPACES)? ' if syntax.thinks else ''}call{more}")
        rules += [f"thought[lazy]: /{begin}{ANYTHING}{end}/", r"SPACES: /\s*/"] if syntax.thinks else []
    elif syntax.trigger is None:
        rules += ["start: CONTENT | call", f"CONTENT: /([^{_pattern(syntax.head[0])}]{ANYTHING})?/"]
    else:
        rest = f"{_text(syntax.head.removeprefix(syntax.trigger))} function"
        rules += [f"start: CONTENT | content {rest}{more}", f"CONTENT: /{ANYTHING}/"]
        rules.append(f"content[lazy]: /{ANYTHING}{_pattern(syntax.trigger)}/")
    for rule, arguments, function in zip(
        _names("function", functions), _names("arguments", functions), functions, strict=True
    ):
        rules.append(f"{rule}: {_text(function.name + syntax.middle)} {arguments} {_text(syntax.tail)}")
        rules.append(f"{arguments}: {_rule_of_parameters(function)}")
    return "\n".join(rules)


def _names(kind: str, functions: Sequence[Function]) -> list[str]:
    return [f"{kind}_{place}" for place in range(len(functions))]


def _rule_of_parameters(function: Function) -> str:
    try:
        return json_rule(function.parameters, is_lenient=not function.is_strict)
    except InvalidRequest as error:
        complaint = error.message.removeprefix("grammar: json_schema ")
        raise InvalidRequest(f"tools: the parameters of {function.name!r}: it {complaint}", "tools") from None


def _text(text: str) -> str:
    return json.dumps(text)


def _pattern(text: str) -> str:
    return re.escape(text).replace("/", r"\/")
