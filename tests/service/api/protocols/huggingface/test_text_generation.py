"""Text generation as Hugging Face's clients ask for it: whole, with details, in pieces, and as TGI has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post
from tests.service.api.protocols.huggingface.conftest import pieces_of, piped


async def test_where_nothing_is_drawn_nothing_is_cut_off(client: Client) -> None:
    greedy = await piped(client, "text-generation", "Once", max_new_tokens=4, do_sample=False)
    defaults = {"typical_p": 0.95, "top_p": 0.95, "temperature": 0.8, "watermark": False}  # LangChain's
    asked = {"inputs": "Once", "parameters": {"max_new_tokens": 4, "do_sample": True, **defaults}}

    assert greedy == await piped(client, "text-generation", "Once", max_new_tokens=4, do_sample=False, **defaults)
    assert (await client.post("/pipeline/text-generation", json=asked)).status_code == 422


async def test_what_ends_an_output_and_what_never_comes_have_their_older_names(client: Client) -> None:
    (whole,) = await piped(client, "text-generation", "Once", max_new_tokens=9, do_sample=False)
    end = whole["generated_text"][2:5]
    first = (await post(client, "/generate", prompt="Once", max_tokens=1, temperature=0, logprobs=0))["choices"][0]
    never = [first["logprobs"][0]["id"]]

    (ended,) = await piped(client, "text-generation", "Once", max_new_tokens=9, do_sample=False, stop_sequences=[end])
    (other,) = await piped(client, "text-generation", "Once", max_new_tokens=1, do_sample=False, suppress_tokens=never)
    native = await post(client, "/generate", prompt="Once", max_tokens=1, temperature=0, suppress_ids=never)

    assert whole["generated_text"].startswith(ended["generated_text"]) and end not in ended["generated_text"]
    assert other["generated_text"] == native["choices"][0]["text"] != first["text"]


async def test_texts_are_continued_whole_and_in_pieces(client: Client) -> None:
    native = await post(client, "/generate", prompt="Once", max_tokens=9, temperature=1, seed=3, stop=["q"])
    parameters = {"max_new_tokens": 9, "temperature": 1, "seed": 3, "stop": ["q"]}
    text = native["choices"][0]["text"]

    assert await piped(client, "text-generation", "Once", **parameters) == [{"generated_text": text}]
    (whole,) = await piped(client, "text-generation", "Once", **parameters, return_full_text=True)
    assert whole == {"generated_text": f"Once{text}"}
    greedy = await post(client, "/generate", prompt="Once", max_tokens=9, temperature=0)
    (found,) = await piped(client, "text-generation", "Once", max_new_tokens=9, do_sample=False)
    assert found == {"generated_text": greedy["choices"][0]["text"]}
    pieces = await pieces_of(client, "/pipeline/text-generation", inputs="Once", parameters=parameters)
    assert "".join(piece["token"]["text"] for piece in pieces) == text == pieces[-1]["generated_text"]


async def test_details_are_the_tokens_and_why_the_text_ended_whole_and_in_pieces(client: Client) -> None:
    native = await post(client, "/generate", prompt="Once", max_tokens=5, temperature=0, logprobs=0)
    (choice,) = native["choices"]
    asked = {"do_sample": False, "details": True, "seed": 3}
    (whole,) = await piped(client, "text-generation", "Once", max_new_tokens=5, return_full_text=True, **asked)
    tokens = [{name: each[name] for name in ("id", "text", "logprob")} for each in choice["logprobs"]]

    assert whole["generated_text"] == f"Once{choice['text']}"
    details = {"finish_reason": "length", "generated_tokens": 5, "seed": 3, "prefill": []}
    assert whole["details"] == {**details, "tokens": [{**token, "special": False} for token in tokens]}
    parameters = {"max_new_tokens": 5, **asked}
    pieces = await pieces_of(client, "/pipeline/text-generation", inputs="Once", parameters=parameters)
    ended = {"finish_reason": "length", "generated_tokens": 5, "seed": 3}
    assert pieces[-1]["details"] == {**ended, "input_length": native["usage"]["prompt_tokens"]}
    assert all("details" not in piece for piece in pieces[:-1])
    (cut,) = await piped(client, "text-generation", "Once", max_new_tokens=9, stop=[choice["text"][1:3]], **asked)
    assert cut["details"]["finish_reason"] == "stop_sequence"
    two = await piped(client, "text-generation", ["Once", "The"], max_new_tokens=2, **asked)
    assert [text["details"]["generated_tokens"] for text in two] == [2, 2]


async def test_a_package_that_searches_does_so_in_pieces_too_and_has_no_details(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    package = with_manifest(stories, tmp_path / "beams", generation={"beam_size": 3, "max_tokens": 8})
    async with open_client(package) as client:
        (whole,) = await piped(client, "text-generation", "Once")
        *_, last = await pieces_of(client, "/pipeline/text-generation", inputs="Once")
        refused = await client.post(
            "/pipeline/text-generation", json={"inputs": "Once", "parameters": {"details": True}}
        )
        greedy = await piped(client, "text-generation", "Once", details=True, num_beams=1)

    assert last["generated_text"] == whole["generated_text"]
    assert refused.status_code == 422 and "this model searches unless num_beams is 1" in refused.text
    assert greedy[0]["details"]["generated_tokens"] <= 8


async def test_the_end_is_a_special_token_among_the_details(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    sampled = {"max_new_tokens": 40, "details": True, "temperature": 5.0}
    async with open_client(stories.folder) as client:
        answers = [(await piped(client, "text-generation", "Once", **sampled, seed=seed))[0] for seed in range(40)]
        seed = next(s for s, each in enumerate(answers) if each["details"]["finish_reason"] == "eos_token")
        parameters = {**sampled, "seed": seed}
        pieces = await pieces_of(client, "/pipeline/text-generation", inputs="Once", parameters=parameters)

    ended = [each["details"] for each in answers if each["details"]["finish_reason"] == "eos_token"]
    assert all(
        [token["special"] for token in details["tokens"]] == [False] * (details["generated_tokens"] - 1) + [True]
        for details in ended
    )
    *_, last = pieces
    assert last["token"]["special"] and last["details"]["finish_reason"] == "eos_token"


async def test_the_texts_of_tokens_that_are_not_special_make_the_whole_text(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    """Also what is held back for a stop text until the end, which is a token by itself."""
    sampled = {"max_new_tokens": 40, "details": True, "temperature": 5.0, "stop": [f"{word}☃" for word in "aeiou "]}
    async with open_client(stories.folder) as client:
        streams = [
            await pieces_of(client, "/generate_stream", inputs="Once", parameters={**sampled, "seed": seed})
            for seed in range(30)
        ]

    reasons = set()
    for *before, last in streams:
        pieces, reason = [*before, last], last["details"]["finish_reason"]
        reasons.add(reason)
        assert (
            "".join(each["token"]["text"] for each in pieces if not each["token"]["special"]) == last["generated_text"]
        )
        assert [each["token"]["special"] for each in pieces] == [False] * len(before) + [reason == "eos_token"]
        assert sorted({each["index"] for each in pieces}) == [each["index"] for each in pieces]
        assert last["index"] == last["details"]["generated_tokens"]
    assert reasons == {"length", "eos_token"}


async def test_an_output_that_ends_as_it_has_its_form_met_no_stop_text(client: Client) -> None:
    asked = {"max_new_tokens": 9, "details": True, "grammar": {"type": "regex", "value": "ab[.]"}}
    reasons = []
    for stop in ("zz", "b."):
        (text,) = await piped(client, "text-generation", "Once", **asked, stop=[stop])
        *_, last = await pieces_of(client, "/generate_stream", inputs="Once", parameters={**asked, "stop": [stop]})
        reasons.append([text["details"]["finish_reason"], last["details"]["finish_reason"]])

    assert reasons == [["eos_token"] * 2, ["stop_sequence"] * 2]


@pytest.mark.parametrize(
    ("grammar", "native"),
    [
        ({"type": "regex", "value": "[ab]{3}"}, {"regex": "[ab]{3}"}),
        ({"type": "json", "value": {"enum": ["a", 7]}}, {"json_schema": {"enum": ["a", 7]}}),
        ({"type": "json", "value": '{"enum": ["a", 7]}'}, {"json_schema": {"enum": ["a", 7]}}),
        ({"type": "json_object", "value": {"enum": ["a", 7]}}, {"json_schema": {"enum": ["a", 7]}}),
        ({"type": "json_schema", "value": {"name": "x", "schema": {"enum": ["a"]}}}, {"json_schema": {"enum": ["a"]}}),
    ],
)
async def test_an_output_has_the_form_that_is_asked_for(
    client: Client, grammar: dict[str, Any], native: dict[str, Any]
) -> None:
    asked = {"max_new_tokens": 9, "do_sample": False, "grammar": grammar}
    (text,) = await piped(client, "text-generation", "Once", **asked, details=True)

    assert text["details"]["finish_reason"] == "eos_token"
    answer = await post(client, "/generate", prompt="Once", max_tokens=9, temperature=0, grammar=native)
    assert text["generated_text"] == answer["choices"][0]["text"]


async def test_who_asks_to_sample_is_not_answered_greedily_where_the_package_is_greedy(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    greedy = with_manifest(stories, tmp_path / "greedy", generation={"temperature": 0, "beam_size": 2})
    async with open_client(greedy) as client:
        drawn = [
            await piped(client, "text-generation", "Once", max_new_tokens=12, do_sample=True, seed=seed)
            for seed in (1, 2, 1)
        ]
        native = await post(client, "/generate", prompt="Once", max_tokens=12, temperature=1, seed=1)

    assert drawn[0] == drawn[2] != drawn[1]
    assert drawn[0] == [{"generated_text": native["choices"][0]["text"]}]


async def test_the_own_routes_of_text_generation_inference_are_here_too(client: Client) -> None:
    body = {"inputs": "Once", "parameters": {"max_new_tokens": 5, "do_sample": False}}
    (text,) = await post(client, "/pipeline/text-generation", **body)

    assert await post(client, "/generate", **body) == text
    assert await post(client, "/generate", **body, options={}, add_special_tokens=True) == text
    *_, last = await pieces_of(client, "/generate_stream", **body)
    assert last["generated_text"] == text["generated_text"]
    several = await client.post("/generate", json={"inputs": ["Once", "The"]})
    assert several.status_code == 422 and several.json()["error_type"] == "validation"
    mixed = await client.post("/generate", json={"inputs": "Once", "max_new_tokens": 5})
    assert "did you mean max_tokens?" in mixed.json()["error"]["message"]
