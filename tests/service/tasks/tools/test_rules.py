"""Outputs that follow the grammar of calls, whatever a model prefers, and what is read of them."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from service.engine.grammar import GrammarError, Vocabulary
from service.errors import InvalidRequest
from service.schemas import ToolCall
from service.tasks.grammars import OPTIONS
from service.tasks.output_reader import OutputReader
from service.tasks.reasoning import Reasoning, ReasoningReader
from service.tasks.said import Said, whole_calls
from service.tasks.tools.functions import Function
from service.tasks.tools.reader import CallReader
from service.tasks.tools.rules import refusal_of, rules_of
from service.tasks.tools.syntax import CallSyntax
from tests.service.tasks.tools import templates
from tests.service.tasks.tools.conftest import syntax_of

END = 256
# Single bytes, and tokens that reach over the ends of what the grammar tells apart.
TEXTS = [bytes([byte]) for byte in range(END)] + [b"<end>", b"<tool_call>", b'{"name', b'": ', b"}}\n</", b"Hm. <tool_"]
CITIES = {"city": {"enum": ["Oslo", 'a "{b}" \\']}}
FUNCTIONS = [
    Function("weather", {"type": "object", "properties": CITIES, "required": ["city"]}, is_strict=False),
    Function("weather.now", {"type": "object", "properties": {"days": {"type": "integer", "maximum": 9}}}, True),
    Function("nothing", {"type": "object", "properties": {}, "additionalProperties": False}, True),
]
SCHEMAS = {function.name: Draft202012Validator(function.parameters) for function in FUNCTIONS}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(TEXTS, END, len(TEXTS))


def syntax(template: str) -> CallSyntax:
    found = syntax_of(template)
    assert found is not None
    return found


def written(vocabulary: Vocabulary, rules: str, wish: str, seed: int, most: int = 400) -> tuple[str, bool]:
    """Return what a model writes that wants to say something and then anything, and whether it came to an end."""
    draw, matcher = random.Random(seed), vocabulary.grammar(rules + OPTIONS).matcher()
    wanted, tokens = list(wish.encode()), list[int]()
    while len(tokens) < most:
        allowed = matcher.allowed().nonzero()[0].tolist()
        ascii_ = [token for token in allowed if token > 127 or token > 31 or token == 10]
        ascii_ = [token for token in ascii_ if token < 127 or token >= END]
        token = wanted.pop(0) if wanted and wanted[0] in allowed else draw.choice(ascii_)
        if token == END:
            return b"".join(TEXTS[each] for each in tokens).decode(), True
        tokens.append(token)
        matcher.add(token)
        if matcher.is_complete:
            return b"".join(TEXTS[each] for each in tokens).decode(), True
    return b"".join(TEXTS[each] for each in tokens).decode(errors="ignore"), False


def read(
    syntax: CallSyntax, text: str, cuts: list[int], reasoning: Reasoning = Reasoning.NONE
) -> tuple[str, list[ToolCall]]:
    reader, ends = OutputReader(ReasoningReader(reasoning), CallReader(syntax)), [*cuts, len(text)]
    said = [
        reader.add(text[begin:end], is_last=place == len(cuts))
        for place, (begin, end) in enumerate(zip([0, *cuts], ends, strict=True))
    ]
    return "".join(each.text for each in said), whole_calls(call for each in said for call in each.calls)


# What a model that reasons does so with, before it answers.
REASONED = [
    (Reasoning.NONE, ""),
    (Reasoning.POSSIBLE, ""),
    (Reasoning.POSSIBLE, "<think>I could <tool_call>.</think>\n"),
    (Reasoning.BEGUN, 'I could {"name": "weather" <tool_call>.\n</think>\n'),
]


def each_case(*names: str) -> pytest.MarkDecorator:
    """Return a mark of tests with each of these templates, behind each kind of reasoning, with some seeds."""
    cases = itertools.product(names, REASONED, range(4))
    return pytest.mark.parametrize(
        ("template", "reasoning", "before", "seed"), [(name, *reasoned, seed) for name, reasoned, seed in cases]
    )


@each_case("MARKED", "WHOLE", "EXPLAINED")
def test_who_has_to_call_calls_a_function_as_it_is_described(
    vocabulary: Vocabulary, template: str, reasoning: Reasoning, before: str, seed: int
) -> None:
    its = syntax(getattr(templates, template))
    rules = rules_of(its, FUNCTIONS, must_call=True, several=True, reasoning=reasoning)
    text, ended = written(vocabulary, rules, before + its.head, seed)
    content, calls = read(its, text, [], reasoning)

    assert text.startswith(before) and content == "" and calls
    for call in calls if ended else calls[:-1]:
        SCHEMAS[call.name].validate(json.loads(call.arguments))
    assert len(calls) == 1 or its.between is not None


@each_case("MARKED", "WHOLE")
def test_who_may_call_says_anything_until_a_call_has_begun(
    vocabulary: Vocabulary, template: str, reasoning: Reasoning, before: str, seed: int
) -> None:
    its = syntax(getattr(templates, template))
    answer = "" if its.trigger is None else "No <tool, or\n "
    rules = rules_of(its, FUNCTIONS, must_call=False, several=False, reasoning=reasoning)
    text, ended = written(vocabulary, rules, before + answer + its.head, seed)
    content, (call,) = read(its, text, [], reasoning)

    assert ended and content == answer.rstrip()
    SCHEMAS[call.name].validate(json.loads(call.arguments))
    matcher = vocabulary.grammar(rules + OPTIONS).matcher()
    for token in before.partition("</think>")[0].encode():
        matcher.add(token)
    assert matcher.allowed()[END]  # also within reasoning that is not closed
    said, ended = written(vocabulary, rules, before + "a" * 300, seed, most=len(before) + 300)
    assert (said, ended) == (before + "a" * 300, False)
    assert read(its, said, [], reasoning) == ("a" * 300, [])


def test_of_several_functions_one_can_be_demanded_and_several_calls_forbidden(vocabulary: Vocabulary) -> None:
    its = syntax(templates.MARKED)
    for seed in range(5):
        text, ended = written(vocabulary, rules_of(its, FUNCTIONS[:1], must_call=True, several=False), "", seed)
        assert ended and [call.name for call in read(its, text, [])[1]] == ["weather"]


@pytest.mark.parametrize("template", ["MARKED", "WHOLE"])
def test_what_is_read_depends_on_no_piece(vocabulary: Vocabulary, template: str) -> None:
    its = syntax(getattr(templates, template))
    for seed in range(8):
        rules = rules_of(its, FUNCTIONS, must_call=False, several=True)
        text, _ = written(vocabulary, rules, ("Well, \n" if its.trigger else "") + its.head, seed)
        whole, draw = read(its, text, []), random.Random(seed)
        assert read(its, "\n" * (its.trigger is None) + text, []) == whole
        assert read(its, text, list(range(1, len(text)))) == whole
        assert read(its, text, sorted(draw.sample(range(len(text)), min(5, len(text))))) == whole


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("Hello <tool_", "Hello <tool_", []),
        ("Hello \n", "Hello \n", []),
        ("Hello \n<tool_call>", "Hello", []),
        ('<tool_call>\n{"name": "weath', "", []),
        ('<tool_call>\n{"name": "weather", "arguments": {"city": "Os', "", [("weather", '{"city": "Os')]),
        ('<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_c', "", [("nothing", "{}")]),
        ('<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_call>\n<tool', "", [("nothing", "{}")]),
    ],
)
def test_a_call_that_is_cut_has_what_was_there(text: str, content: str, calls: list[tuple[str, str]]) -> None:
    found, read_calls = read(syntax(templates.MARKED), text, [])

    assert found == content
    assert [(call.name, call.arguments) for call in read_calls] == calls


def test_a_whole_message_that_is_cut_in_its_head_is_no_text() -> None:
    its = syntax(templates.WHOLE)
    reader = CallReader(its)

    assert reader.add('\n{"na', is_last=True) == Said() and reader.is_within_call
    assert read(its, "{ no call", []) == ("{ no call", [])


def test_who_has_to_call_and_has_not_is_cut() -> None:
    must, may = (CallReader(syntax(templates.MARKED), must_call=must_call) for must_call in (True, False))
    assert must.is_within_call and not may.is_within_call
    must.add('<tool_call>\n{"name": "nothing", "arguments": {}', is_last=True)
    assert not must.is_within_call  # its arguments are whole


def test_who_has_to_call_says_nothing_of_a_call_that_is_cut() -> None:
    for template, head in ((templates.MARKED, '<tool_call>\n{"name": "'), (templates.WHOLE, '{"name": "')):
        for end in range(len(head) + 1):
            reader = CallReader(syntax(template), must_call=True)
            assert reader.add(head[:end], is_last=True) == Said()


def test_arguments_come_as_they_are_written() -> None:
    reader = CallReader(syntax(templates.MARKED))
    pieces = ["Well", ' <tool_call>\n{"name": "weather", "argu', 'ments": {"ci', 'ty": "}"', "}}\n</tool_call>"]
    said = [reader.add(piece) for piece in pieces]

    assert [each.text for each in said] == ["Well", "", "", "", ""]
    assert [[(call.index, call.name, call.arguments) for call in each.calls] for each in said] == [
        [],
        [],
        [(0, "weather", '{"ci')],
        [(0, None, 'ty": "}"')],
        [(0, None, "}")],
    ]


def test_what_no_grammar_can_say_is_passed_over_unless_the_function_is_strict(vocabulary: Vocabulary) -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {"days": {"type": "array", "uniqueItems": True}}}
    for is_strict in (False, True):
        rules = rules_of(
            syntax(templates.MARKED), [Function("open", parameters, is_strict)], must_call=True, several=True
        )
        if is_strict:
            with pytest.raises(Exception, match="uniqueItems"):
                vocabulary.grammar(rules + OPTIONS)
        else:
            vocabulary.grammar(rules + OPTIONS)


def test_parameters_with_characters_that_json_cannot_write_are_refused_by_the_functions_name() -> None:
    parameters = {"type": "object", "properties": {"a": {"const": "\x00"}}}
    with pytest.raises(InvalidRequest, match="a control character") as found:
        rules_of(syntax(templates.MARKED), [Function("f", parameters, is_strict=True)], must_call=True, several=True)

    assert found.value.param == "tools"
    assert found.value.message.startswith("tools: the parameters of 'f': there is a control character")


def test_a_complaint_is_about_the_function_whose_rule_it_quotes(vocabulary: Vocabulary) -> None:
    disguised = {"type": "string", "pattern": "arguments_99: ("}
    parameters: dict[str, Any] = {"type": "object", "properties": {"a": disguised}}
    functions = [*FUNCTIONS, Function("f", parameters, is_strict=True)]
    rules = rules_of(syntax(templates.MARKED), functions, must_call=True, several=True)
    with pytest.raises(GrammarError) as found:
        vocabulary.grammar(rules + OPTIONS)

    assert refusal_of(functions, str(found.value)).message.startswith("tools: the parameters of 'f': failed to compile")
    assert refusal_of(functions, "9 | arguments_99: %json {}").message.startswith("tools: ")
