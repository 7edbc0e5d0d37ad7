from __future__ import annotations

import pytest

from tests.service.tasks.tools import templates
from tests.service.tasks.tools.conftest import syntax_of

MARKED = ('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n", "<tool_call>")
WHOLE = ('{"name": "', '", "parameters": ', "}", None, None)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (templates.MARKED, MARKED),
        (templates.THINKING, MARKED),
        (templates.EXPLAINED, MARKED),
        (
            templates.MARKED.replace("<|im_start|>assistant{% if", "<|im_start|>assistant\n<think>\n</think>\n{% if"),
            MARKED,
        ),
        (templates.WHOLE, WHOLE),
        (
            templates.MARKED.replace("'\n<tool_call>", "' Do:<tool_call>"),
            ("Do:" + MARKED[0], *MARKED[1:3], " ", "Do:<tool_call>"),
        ),
    ],
)
def test_how_calls_are_written_is_found_in_the_template(template: str, expected: tuple[str | None, ...]) -> None:
    found = syntax_of(template)

    assert found is not None
    assert (found.head, found.middle, found.tail, found.between, found.trigger) == expected


@pytest.mark.parametrize(
    "template",
    [
        templates.SPECIAL,
        templates.NUMBERED,
        templates.BEGINNING + templates.SAID + templates.END,
        templates.MARKED.replace("call.arguments | tojson", "call.arguments | tojson | tojson"),
        templates.MARKED.replace('{"name": "', "").replace('", "arguments": ', "_"),
        templates.EXPLAINED.replace("<tool_call>", "<s>"),
        templates.EXPLAINED.replace("tool_call>", "s>"),
        templates.MARKED.replace("'}\n</tool_call>'", "', \"of\": \"' + call.name + '\"}'"),
        *(templates.MARKED.replace("<tool_call>", word) for word in ("Calls", "Call:", "[", "-", "<")),
        "{{ raise_exception('no conversations') }}{{ tools }}",
    ],
)
def test_calls_that_cannot_be_told_from_text_are_not_read(template: str) -> None:
    assert syntax_of(template) is None


def test_calls_between_which_special_tokens_stand_come_one_at_a_time() -> None:
    found = syntax_of(templates.MARKED.replace("'}\n</tool_call>'", "'}\n</tool_call><s>'"))

    assert found is not None and found.tail == MARKED[2] and found.between is None
