from __future__ import annotations

import time
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from model.package.chat import TemplateError, TooMuch, compiled, render

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  What is <b>ice</b>?\n"},
    {
        "role": "assistant",
        "content": "Frozen water.",
        "tool_calls": [{"function": {"name": "f", "arguments": {"é": 1}}}],
    },
]
CHATML = """\
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
TEMPLATES = {
    "ChatML": CHATML,
    "namespaces and slices": "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}"
    "{% set ns.n = ns.n + m.content|length %}{% endfor %}{{ ns.n }}{{ messages[0]['content'][:2] }}",
    "loop controls": "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}"
    "{{ m.role }}{% break %}{% endfor %}",
    "json": "{{ messages | tojson }}{{ messages[2].tool_calls | tojson(indent=2, ensure_ascii=True) }}",
    "lines that are only blocks": "a\n    {% if true %}\n  b\n    {% endif %}\nc\n",
    "macros": "{% macro say(m, mark='-') %}{{ mark }}{{ m.content }}{% endmacro %}"
    "{% for m in messages %}{{ say(m) }}{% endfor %}",
    "marks for training": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "texts put together": "{{ 'a' ~ 1 ~ none ~ messages[0].role }}{{ '%s: %d' % ('a', 2) }}{{ '%s' | format('b') }}"
    "{{ ['a', 'b'] | join(', ') }}{{ ', '.join(['a', 'b']) }}{{ 'abc' | join('-') }}{{ '{} {b}'.format(1, b=2) }}"
    "{{ 'a-b'.replace('-', '+') }}{{ 'a' | center(5) }}{{ 7 % 4 + 1 }}{{ ([1] + [2]) | length }}"
    "{{ 'on 20240101: %s' % 'x' }}{{ 'on 20240101 {}'.format(1) }}",
    "tests and filters": "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}"
    "{{ tools is defined and tools is not none }}{{ 'x' if strange is defined else 'y' }}{{ dict(a=1) }}",
}


DOUBLED = "{{% set n = namespace(a='ab') %}}{{% for i in range(40) %}}{{% set n.a = {} %}}{{% endfor %}}"


def rendered(source: str, seconds: float = 5.0, characters: int = 10_000, **values: Any) -> str:
    return render(compiled(source), values, seconds=seconds, characters=characters)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_a_template_gives_the_text_that_transformers_gives(name: str, add_generation_prompt: bool) -> None:
    values: dict[str, Any] = {"add_generation_prompt": add_generation_prompt, "bos_token": "<s>"}
    (expected,), _ = render_jinja_template([MESSAGES], chat_template=TEMPLATES[name], **values)

    assert rendered(TEMPLATES[name], messages=MESSAGES, tools=None, **values) == expected


def test_the_clock_can_be_asked_for_the_date() -> None:
    assert rendered("{{ strftime_now('%Y') }}") == time.strftime("%Y")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "^roles must alternate$"),
        ("{{ messages[0].content.x.y }}", "has no attribute 'x'"),
        ("{{ messages | sum }}", "TypeError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages.__init__.__globals__ }}", "unsafe"),
        ("{% set ns = namespace(_x=1) %}", "cannot have the attribute '_x'"),
        ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "cannot have the attribute"),
        ("{% include '/etc/passwd' %}", "no loader"),
    ],
)
def test_what_a_template_may_not_or_does_not_want_is_an_error(source: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        rendered(source, messages=MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in t %}{% for b in t %}{% for c in t %}{% for d in t %}" + 4 * "{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    ],
)
def test_rendering_that_takes_too_long_is_ended(source: str) -> None:
    with pytest.raises(TooMuch, match="too long"):
        rendered(source, seconds=0.1, t=list(range(99)))


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(9999) %}0123456789{% endfor %}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%999999999999d' % 1 }}",
        "{{ '%*d' % (999999999999, 1) }}",
        "{{ '%999999999999d' | format(1) }}",
        "{{ '{:{w}}'.format(1, w=999999999999) }}",
        "{{ ('x' * 9999) | replace(new='y' * 9999, old='x') }}",
        "{{ (['x' * 9999] * 9999) | join }}",
        "{{ '{:999999999999}'.format(1) }}",
        "{{ 'a'.ljust(999999999999) }}",
        "{{ 'a' | center(999999999999) }}",
        "{{ [1] | batch(999999999999, 0) | list }}",
        "{{ {'a': 1} | tojson(indent=999999999999) }}",
        DOUBLED.format("n.a ~ n.a"),
        DOUBLED.format("n.a + n.a"),
        DOUBLED.format("[n.a, n.a] | join"),
        DOUBLED.format("n.a.replace('a', 'aa')"),
        DOUBLED.format("n.a | replace('a', 'aa')"),
        DOUBLED.format("(n.a[:99] | list + n.a[:99] | list) | join(n.a)"),
    ],
)
def test_rendering_that_makes_too_much_is_ended(source: str) -> None:
    with pytest.raises(TooMuch):
        rendered(source)


def test_what_writes_many_paragraphs_of_nothing_is_not_there() -> None:
    with pytest.raises(TemplateError, match="lipsum"):
        rendered("{{ lipsum(999999999999) }}")


@pytest.mark.parametrize("times", [120, 3000])
@pytest.mark.parametrize(("begin", "end"), [("{% if x %}", "{% endif %}"), ("{% for x in y %}", "{% endfor %}")])
def test_a_template_that_is_nested_too_deeply_is_refused(begin: str, end: str, times: int) -> None:
    with pytest.raises(TemplateError, match="nested too deeply"):
        compiled(begin * times + end * times)


def test_a_number_that_python_does_not_read_is_refused() -> None:
    with pytest.raises(TemplateError, match="5000 digits"):
        compiled("{{ " + "1" * 5000 + " }}")
