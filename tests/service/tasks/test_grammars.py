"""Grammars as requests ask for them: what comes out has the form, or says that it was cut; hostile ones are refused."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from service.engine.grammar import Vocabulary
from service.errors import InvalidRequest, ServerOverloaded
from service.models_file import ModelSettings
from service.schemas import GenerateRequest, GenerateResponse, Grammar
from service.settings import Limits
from service.tasks.grammars import lark_of
from service.tasks.loading import load_task
from service.tasks.task import LocalTask
from tests.conftest import MakePackage, TinyPackage
from tests.service.tasks.schemas import Schema, schemas

PROPERTY = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
HOSTILE: dict[str, Grammar] = {
    "patterns that meet": Grammar(
        json_schema={"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{n}}}"} for n in range(3, 20)]}
    ),
    "a chain of rules": Grammar(
        lark="start: a0\n" + "\n".join(f"a{n}: a{n + 1}" for n in range(3000)) + '\na3000: "x"'
    ),
    "deep brackets": Grammar(lark="start: " + "(" * 20_000 + '"a"' + ")" * 20_000),
    "deep groups": Grammar(regex="(" * 5000 + "a" + ")" * 5000),
    "a wide schema": Grammar(json_schema={"enum": [f"value {n}" for n in range(9000)]}),
    "a deep schema": Grammar(json_schema={"$ref": "#"}),
    "multiples": Grammar(json_schema={"type": "integer", "multipleOf": 1_299_709}),
}


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def task(make_package: MakePackage, loop: asyncio.AbstractEventLoop) -> Iterator[LocalTask]:
    """A tiny model, whose engine lives on one loop through all examples."""

    async def load() -> LocalTask:
        return load_task(ModelSettings(package=make_package("stories").folder, threads=1), Limits())

    task = loop.run_until_complete(load())
    yield task
    loop.run_until_complete(task.close())


async def ask(task: LocalTask, grammar: Grammar, **fields: object) -> GenerateResponse:
    request = GenerateRequest.model_validate({"prompt": "Once", "max_tokens": 60, **fields, "grammar": grammar})
    answer = await task.predict(request)
    assert isinstance(answer, GenerateResponse)
    return answer


@PROPERTY
@given(schemas(), st.integers(0, 2**32), st.booleans(), st.sampled_from(["", "Once"]))
def test_what_comes_out_is_valid_or_was_cut(
    task: LocalTask, loop: asyncio.AbstractEventLoop, schema: Schema, seed: int, searches: bool, prompt: str
) -> None:
    fields = {"beam_size": 3} if searches else {"seed": seed, "temperature": 1.5, "n": 2}
    try:
        answer = loop.run_until_complete(ask(task, Grammar(json_schema=schema), prompt=prompt, **fields))
    except InvalidRequest as refused:
        assert refused.param == "grammar"
        return

    for choice in answer.choices:
        if choice.finish_reason == "stop":
            Draft202012Validator(schema).validate(json.loads(choice.text))


def test_an_object_ends_behind_the_properties_that_are_described(
    task: LocalTask, loop: asyncio.AbstractEventLoop
) -> None:
    one = {"properties": {"age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["age"]}
    answer = loop.run_until_complete(ask(task, Grammar(json_schema=one), n=8, seed=1, temperature=1.5))

    assert all(re.fullmatch(r'\{ ?"age": ?[0-9]+ ?\}', choice.text) for choice in answer.choices)


@settings(PROPERTY, max_examples=40)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=6), st.integers(0, 2**32), st.sampled_from(["", "Once"]))
def test_a_choice_is_one_of_those_given(
    task: LocalTask, loop: asyncio.AbstractEventLoop, choices: list[str], seed: int, prompt: str
) -> None:
    answer = loop.run_until_complete(ask(task, Grammar(choice=choices), seed=seed, prompt=prompt))

    (choice,) = answer.choices
    assert choice.text in choices if choice.finish_reason == "stop" else choice.finish_reason == "length"


@pytest.mark.parametrize("prompt", ["", "Once"])
@pytest.mark.parametrize(
    "regex", ["a/b|c", r" ?[0-9]{3}(/[0-9][0-9])+ ", "", "[^a]{4}", "(?i)yes|no", "ä?ö+[.]", "(?x)a+ # c"]
)
def test_a_text_matches_its_regular_expression(
    task: LocalTask, loop: asyncio.AbstractEventLoop, regex: str, prompt: str
) -> None:
    answer = loop.run_until_complete(ask(task, Grammar(regex=regex), n=4, seed=1, prompt=prompt))

    ended = [choice.text for choice in answer.choices if choice.finish_reason != "length"]
    assert ended and all(re.fullmatch(regex, text) for text in ended)


@pytest.mark.parametrize("regex", ["ab\\", "a)|(b", "(ab", "a\\\\\\"])
def test_what_is_no_regular_expression_is_refused(task: LocalTask, loop: asyncio.AbstractEventLoop, regex: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        loop.run_until_complete(ask(task, Grammar(regex=regex)))

    assert refused.value.param == "grammar"


@pytest.mark.parametrize("prompt", ["", "Once"])
def test_a_context_free_grammar_may_ignore_and_recurse(
    task: LocalTask, loop: asyncio.AbstractEventLoop, prompt: str
) -> None:
    grammar = Grammar(lark='start: sum\nsum: "1" | "(" sum "+" sum ")"\n%ignore / /')
    answer = loop.run_until_complete(ask(task, grammar, n=8, seed=1, prompt=prompt))

    ended = [choice.text for choice in answer.choices if choice.finish_reason == "stop"]
    assert ended and all(re.fullmatch(r"[1(+) ]+", text) and eval(text) for text in ended)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The grammars that are compiled."""
    seen: list[str] = []
    compile_ = Vocabulary.grammar

    def noted(vocabulary: Vocabulary, lark: str) -> Any:
        seen.append(lark)
        return compile_(vocabulary, lark)

    monkeypatch.setattr(Vocabulary, "grammar", noted)
    return seen


def test_a_grammar_is_compiled_once(task: LocalTask, loop: asyncio.AbstractEventLoop, compiled: list[str]) -> None:
    grammar = Grammar(choice=["once", "and once more"])

    async def several() -> None:
        await asyncio.gather(*(ask(task, grammar, n=2) for _ in range(4)))

    first = loop.run_until_complete(ask(task, grammar, seed=4, n=3))
    loop.run_until_complete(several())
    assert loop.run_until_complete(ask(task, grammar, seed=4, n=3)) == first
    assert len(compiled) == 1


@pytest.mark.parametrize(("bound", "most", "times"), [("MAX_CACHED", 2, 1), ("MAX_CACHED_CHARACTERS", 500, 30)])
async def test_of_many_grammars_the_last_are_kept(
    stories: TinyPackage, compiled: list[str], monkeypatch: pytest.MonkeyPatch, bound: str, most: int, times: int
) -> None:
    monkeypatch.setattr(f"service.tasks.grammars.{bound}", most)
    task = load_task(ModelSettings(package=stories.folder, threads=1), Limits())
    for word in ("first", "second", "third", "second", "first"):
        await ask(task, Grammar(choice=[word * times]), max_tokens=1)
    await task.close()

    assert [lark.count("first") for lark in compiled] == [times, 0, 0, times]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_refused_while_others_go_on(
    task: LocalTask, loop: asyncio.AbstractEventLoop, name: str
) -> None:
    async def beside() -> int:
        """Count the turns of the loop while the grammar is looked at."""
        refused = asyncio.create_task(ask(task, HOSTILE[name]))
        turns = 0
        while not refused.done():
            await asyncio.sleep(0.005)
            turns += 1
        with pytest.raises(InvalidRequest, match="grammar"):
            await refused
        return turns

    assert loop.run_until_complete(beside()) < 4000  # within twenty seconds, on a machine with other work


OPEN = {"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        (r'{"a": 1,"b": "x"}', True),
        (r'{"a":1, "b":"x\n\""}', True),
        (r'{"a": 1, "a": "x"}', False),
        (r'{"a": 1, "\u0061": "x"}', False),  # is "a" again
        ("{ }", False),
        ('{"a":  1}', False),
    ],
)
def test_json_is_on_one_line_and_no_key_is_in_disguise(text: str, is_allowed: bool) -> None:
    vocabulary = Vocabulary([None, *(bytes([byte]) for byte in range(256))], end=0, size=257)
    matcher = vocabulary.grammar(lark_of(Grammar(json_schema={"type": "object", **OPEN}))).matcher()
    found = True
    for byte in text.encode():
        found &= bool(matcher.allowed()[1 + byte])
        matcher.add(1 + byte)

    assert found == is_allowed


def test_two_properties_without_names_cannot_be_asked_for(task: LocalTask, loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(InvalidRequest, match="minProperties is 2; it may be 1"):
        loop.run_until_complete(ask(task, Grammar(json_schema={"items": {"type": "object", "minProperties": 2}})))


CONTROLS = [
    {"const": "0\x1f"},
    {"items": {"enum": ["a", {"b": ["\x7f"]}]}},
    {"properties": {"a\x02": {}}},
    {"required": ["\x00"]},
    *({"pattern": pattern} for pattern in ["a\x01", r"^0\x1f$", r"\v", r"\u{1f}", r"[\x7F]", r"\\\a", r"\u001F"]),
    {"patternProperties": {r"\x1f": {}}},
]


@pytest.mark.parametrize("schema", CONTROLS)
def test_a_control_character_that_would_be_left_out_is_refused(schema: Schema) -> None:
    with pytest.raises(InvalidRequest, match="control character in"):
        lark_of(Grammar(json_schema=schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"const": "\n\r\t\b\f\x85"},
        *({"pattern": p} for p in [r"^[^\x00-\x1f]*$", r"\\a", r"\x0a", r"[\x1f-~]", r"\x1"]),
    ],
)
def test_characters_that_json_can_write_by_themselves_are_taken(schema: Schema) -> None:
    assert lark_of(Grammar(json_schema=schema))


def test_a_grammar_has_no_options_of_its_own(task: LocalTask, loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(InvalidRequest, match="%llguidance"):
        loop.run_until_complete(ask(task, Grammar(lark='%llguidance {"no_forcing": false}\nstart: "a"')))


def test_a_grammar_whose_trial_was_killed_is_tried_again(
    task: LocalTask, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar, run = Grammar(regex="killed|once"), subprocess.run

    def killed(command: list[str], **how: Any) -> Any:
        return subprocess.CompletedProcess(command, -signal.SIGKILL, "", "")

    def late(command: list[str], **how: Any) -> Any:
        raise subprocess.TimeoutExpired(command, 15.0)

    def refused(command: list[str], **how: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def without_threads(command: list[str], **how: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, "", "RuntimeError: can't start new thread")

    for unlucky in (killed, late, refused, without_threads):
        monkeypatch.setattr(subprocess, "run", unlucky)
        with pytest.raises(ServerOverloaded, match="try again"):
            loop.run_until_complete(ask(task, grammar))
    monkeypatch.setattr(subprocess, "run", run)

    assert loop.run_until_complete(ask(task, grammar)).choices


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel asks who is to die first on Linux alone")
def test_a_trial_is_the_first_to_die_when_memory_is_short() -> None:
    code = (
        "from service.tasks.grammar_trial import die_first; die_first()\nprint(open('/proc/self/oom_score_adj').read())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert int(shown) == 1000
