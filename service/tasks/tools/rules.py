"""The grammar of an output in which tools are called, in llguidance's form of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from llguidance import regex_to_lark

from service.errors import InvalidRequest
from service.tasks.grammars import in_one_line, json_rule
from service.tasks.reasoning import CLOSING, OPENING, Reasoning
from service.tasks.tools.functions import Function
from service.tasks.tools.syntax import CallSyntax

QUOTED_RULE = re.compile(r"^ *\d+ \| arguments_(\d{1,9}): %json", re.MULTILINE)  # in a complaint
ANYTHING = r"(.|\n)*"
# Of reasoning: what stands before an answer, what keeps an answer from beginning as it does, how it begins itself.
BEFORE = {Reasoning.NONE: "", Reasoning.POSSIBLE: "[reasoning SPACES] ", Reasoning.BEGUN: "reasoning SPACES "}
APART = {Reasoning.NONE: "", Reasoning.POSSIBLE: " & ~UNCLOSED", Reasoning.BEGUN: ""}
BEGINNING = {Reasoning.POSSIBLE: rf"\s*{OPENING}{ANYTHING}", Reasoning.BEGUN: ANYTHING}


def rules_of(
    syntax: CallSyntax,
    functions: Sequence[Function],
    *,
    must_call: bool,
    several: bool,
    reasoning: Reasoning = Reasoning.NONE,
) -> str:
    """Return the rules of an output that must call some of these functions, or that may say any text and then call.

    A call that has begun, unless it is part of reasoning, must become a call of one of these, with arguments as they
    are described. Raises `InvalidRequest` for parameters that no grammar can follow.
    """
    more = f" ({json.dumps(syntax.between)} call)*" if several and syntax.between is not None else ""
    rules = [f"call: {json.dumps(syntax.head)} function", f"function: {' | '.join(_names('function', functions))}"]
    rules += [*_rules_of_reasoning(reasoning), r"SPACES: /\s*/"]
    if must_call:
        answer = f"call{more}"
    elif syntax.trigger is None:
        answer = "CONTENT | [SPACES] call"
        rules.append(rf"CONTENT: /\s*([^\s{_pattern(syntax.head[0])}]{ANYTHING})?/{APART[reasoning]}")
    else:
        answer = f"CONTENT | content {json.dumps(syntax.head.removeprefix(syntax.trigger))} function{more}"
        rules.append(f"CONTENT: /{ANYTHING}/{APART[reasoning]}")
        rules.append(f"content[lazy]: CALLING{APART[reasoning]}")
        rules.append(f"CALLING: /{ANYTHING}{_pattern(syntax.trigger)}/")
    unclosed = "UNCLOSED | " if reasoning in BEGINNING and not must_call else ""
    rules.append(f"start: {unclosed}{BEFORE[reasoning]}({answer})")
    for rule, arguments, function in zip(
        _names("function", functions), _names("arguments", functions), functions, strict=True
    ):
        rules.append(f"{rule}: {json.dumps(function.name + syntax.middle)} {arguments} {json.dumps(syntax.tail)}")
        rules.append(f"{arguments}: {_rule_of_parameters(function)}")
    return "\n".join(rules)


def _rules_of_reasoning(reasoning: Reasoning) -> list[str]:
    if reasoning is Reasoning.NONE:
        return []
    beginning = BEGINNING[reasoning]
    return [f"reasoning[lazy]: /{beginning}{_pattern(CLOSING)}/", f"UNCLOSED: /{beginning}/"]


def _names(kind: str, functions: Sequence[Function]) -> list[str]:
    return [f"{kind}_{place}" for place in range(len(functions))]


def _rule_of_parameters(function: Function) -> str:
    try:
        return json_rule(function.parameters, is_lenient=not function.is_strict)
    except InvalidRequest as error:
        complaint = error.message.removeprefix("grammar: ")
        raise InvalidRequest(f"tools: the parameters of {function.name!r}: {complaint}", "tools") from None


def refusal_of(functions: Sequence[Function], complaint: str) -> InvalidRequest:
    """Return what is wrong with the rules, in words of the function that it is about."""
    *_, number = (int(each) for each in [len(functions), *QUOTED_RULE.findall(complaint)])
    whose = f"the parameters of {functions[number].name!r}: " if number < len(functions) else ""
    return InvalidRequest(f"tools: {whose}{in_one_line(complaint, is_own=False)}", "tools")


def _pattern(text: str) -> str:
    return regex_to_lark(re.escape(text), "")
