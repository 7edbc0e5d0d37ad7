"""Grammars through the API: whole and streamed answers, models that turn texts into texts, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from model.package import PackageTokenizer
from model.package.manifest import TOKENIZER_FILE
from service.schemas.grammar import MAX_CHOICES
from tests.conftest import MakePackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, events_of, post
from tests.service.api.test_text_to_text import BART, T5

ANY_OBJECT = {"json_schema": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}}}
DATE = {"regex": "[0-9]{2}/[0-9]{2}"}
FORCED = {**BART, "generation": {**BART["generation"], "forced_start": 1}}  # a special token, as BART's own


async def test_a_stream_with_a_grammar_is_the_whole_text(client: Client) -> None:
    body: dict[str, Any] = {"prompt": "Once", "grammar": DATE, "n": 3, "seed": 1, "echo": True}
    whole = await post(client, "/generate", **body)
    *pieces, usage = await events_of(client, "/generate", **body)

    for choice in whole["choices"]:
        mine = [piece for piece in pieces if piece["index"] == choice["index"]]
        assert re.fullmatch("Once" + DATE["regex"], choice["text"]) and choice["finish_reason"] == "stop"
        assert "".join(piece["text"] for piece in mine) == choice["text"]
        assert mine[-1]["finish_reason"] == "stop"
    assert usage == {"usage": whole["usage"]}


async def test_what_was_cut_says_so(client: Client) -> None:
    (choice,) = (await post(client, "/generate", prompt="Once", grammar=DATE, max_tokens=2))["choices"]

    assert choice["finish_reason"] == "length" and not re.fullmatch(DATE["regex"], choice["text"])


async def test_a_stop_text_ends_it_before_its_end(client: Client) -> None:
    (choice,) = (await post(client, "/generate", prompt="Once", grammar=DATE, stop="/"))["choices"]

    assert re.fullmatch("[0-9]{2}", choice["text"]) and choice["finish_reason"] == "stop"


async def test_log_probabilities_are_those_among_what_may_come(client: Client) -> None:
    body = {"prompt": "Once", "grammar": {"choice": ["ab", "xy"]}, "temperature": 0}
    (choice,) = (await post(client, "/generate", **body, logprobs=20))["choices"]

    first = choice["logprobs"][0]["top"]
    assert {token["text"] for token in first} <= {"a", "ab", "x", "xy"}
    assert all(token["logprob"] <= 0 for token in first)


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"seed": 1, "temperature": 2}, {"beam_size": 3, "n": 2}])
@pytest.mark.parametrize("changes", [T5, FORCED], ids=["t5", "bart"])
async def test_a_model_that_turns_texts_into_texts_follows_a_grammar(
    open_client: OpenClient,
    make_package: MakePackage,
    tmp_path: Path,
    changes: dict[str, Any],
    fields: dict[str, Any],
) -> None:
    folder = with_manifest(make_package("translate"), tmp_path / "model", **changes)
    async with open_client(folder) as client:
        body = {"prompt": ["Dan", "glass"], "max_tokens": 40, **fields}
        dates = await post(client, "/generate", **body, grammar=DATE)
        choices = await post(client, "/generate", **body, grammar={"choice": [" hot", "cold"]})
        empty = {"type": "object", "properties": {}, "additionalProperties": False}
        objects = await post(client, "/generate", **body, grammar={"json_schema": empty})

    assert all(re.fullmatch(DATE["regex"], choice["text"]) for choice in dates["choices"])
    assert all(choice["text"] in {" hot", "cold"} for choice in choices["choices"])
    ended = [choice["text"] for choice in objects["choices"] if choice["finish_reason"] == "stop"]
    assert ended and all(json.loads(text) == {} for text in ended)


async def test_as_many_choices_as_may_be_sent_can_be_chosen_from(client: Client) -> None:
    choices = [f"{number:04d}" for number in range(MAX_CHOICES)]
    body = {"prompt": "Once", "n": 4, "temperature": 1.5, "seed": 1, "max_tokens": 20}
    found = (await post(client, "/generate", **body, grammar={"choice": choices}))["choices"]

    assert {choice["finish_reason"] for choice in found} == {"stop"}
    assert all(choice["text"] in choices for choice in found)


async def test_what_says_a_token_in_quotes_is_a_text(client: Client) -> None:
    lark = 'start: "<|a|>" /<[5]>/ // <[7]>'
    (choice,) = (await post(client, "/generate", prompt="Once", max_tokens=40, grammar={"lark": lark}))["choices"]

    assert choice["text"] == "<|a|><5>"


async def test_a_grammar_that_the_tokens_cannot_write_says_so(client: Client, make_package: MakePackage) -> None:
    texts = PackageTokenizer.load(make_package("stories").folder / TOKENIZER_FILE).token_bytes().texts
    braces = [token for token, text in enumerate(texts) if text and b"{" in text]  # T5 has none of them
    for fields in ({"beam_size": 2}, {"seed": 1}):
        body = {"prompt": "Once", "suppress_ids": braces, "grammar": ANY_OBJECT, **fields}
        (choice,) = (await post(client, "/generate", **body))["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("", "grammar")
        *_, last, _usage = await events_of(client, "/generate", **body)
        assert last["finish_reason"] == "grammar"


async def test_what_is_wrong_with_a_schema_is_told_without_rules_that_nobody_sent(client: Client) -> None:
    for grammar, said in (
        ({"json_schema": {"type": "thing"}}, "grammar: failed to compile JSON schema: Invalid type: thing"),
        ({"regex": "[a"}, 'grammar: invalid regex "[a" (in regex): regex parse error: [a error: unclosed character'),
    ):
        response = await client.post("/generate", json={"prompt": "Once", "grammar": grammar})
        message = response.json()["error"]["message"]
        assert message.startswith(said) and "start:" not in message


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ({}, "one of json_schema, regex, choice and lark"),
        ({"regex": "a", "choice": ["a"]}, "one of json_schema, regex, choice and lark"),
        ({"xml": "a"}, "Extra inputs"),
        ({"choice": []}, "at least 1 item"),
        ({"choice": ["a"] * 1025}, "at most 1024 items"),
        ({"choice": ["a" * 70_000]}, "65536"),
        ({"regex": "(a"}, "unclosed group"),
        ({"regex": "(?=a)b"}, "look-ahead"),
        ({"json_schema": {"type": "thing"}}, "thing"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"json_schema": {"allOf": [{"type": "string"}, {"type": "null"}]}}, "nsatisfiable"),
        ({"json_schema": {"type": "object", "x-guidance": {"lenient": True}, "dependentSchemas": {}}}, "dependent"),
        ({"lark": "begin: /a/"}, "start"),
        ({"lark": 'start: "a" b\nb: c'}, "at 2(4)"),  # as the client counts its lines
        ({"lark": "start: <[5]>"}, "lark names a token, <[5]>"),
        ({"lark": "start: <[0-255,0-255,0-255,0-255,0-255,0-255,0-255]>+"}, "lark names a token, <[0-255,0-255,"),
        ({"lark": "start: /a\nb/ <[12]>"}, "lark names a token, <[12]>"),
        ({"lark": "# and/or\nstart: <[12]>"}, "lark names a token, <[12]>"),
        ({"lark": 'start: "#" <[12]>'}, "lark names a token, <[12]>"),
        ({"lark": 'start: /a\n"/ <[12]> "x"'}, "lark names a token, <[12]>"),
        ({"lark": f"start: <|{'a' * 50}|>"}, "lark names a token, <|aaa"),
        ({"lark": 'start: "<|a|>" <|endoftext|>'}, "lark names a token, <|endoftext|>"),
    ],
)
async def test_what_is_no_grammar_is_refused(client: Client, grammar: dict[str, Any], said: str) -> None:
    response = await client.post("/generate", json={"prompt": "Once", "grammar": grammar})

    assert response.status_code == 422, response.text
    error = response.json()["error"]
    assert error["param"].startswith("grammar") and said in f"{error['param']}: {error['message']}"
