"""What a request leaves out is as the package has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post

# Greedy, and no token twice, as so small a model would repeat a single one for ever.
VARIED: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "logprobs": 0, "no_repeat_ngram_size": 1}


async def generated(client: Client, **body: Any) -> Any:
    return await post(client, "/generate", prompt="Once upon a time", **body)


def ids_of(answer: Any) -> list[int]:
    return [token["id"] for token in answer["choices"][0]["logprobs"]]


async def test_sampling_defaults_are_the_packages_and_each_can_be_overridden(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    defaults = {"temperature": 0, "max_tokens": 7, "repetition_penalty": 1.8, "min_tokens": 3}
    async with open_client(with_manifest(stories, tmp_path / "tuned", generation=defaults), "stories") as client:
        implied = await generated(client)
        stated = await generated(client, model="stories", **defaults)
        other = await generated(client, max_tokens=9, repetition_penalty=1.0)
        plain = await generated(client, model="stories", temperature=0, max_tokens=9, min_tokens=3)

    assert implied["choices"] == stated["choices"] and implied["usage"]["completion_tokens"] == 7
    assert other["choices"] == plain["choices"] != implied["choices"]


@pytest.mark.parametrize(
    ("fields", "draws"),
    [({"n": 3}, True), ({"top_p": 0.9}, True), ({"top_k": 50}, True), ({"top_p": 1.0}, False), ({"seed": 1}, False)],
)
async def test_a_greedy_package_draws_for_who_asks_for_choices_or_says_what_to_draw_from(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path, fields: dict[str, Any], draws: bool
) -> None:
    folder = with_manifest(stories, tmp_path / "greedy", generation={"temperature": 0, "max_tokens": 20})
    async with open_client(folder) as client:
        greedy = [await generated(client, **fields, temperature=0) for _ in range(3)]
        asked = [await generated(client, **fields) for _ in range(3)]

    texts = {choice["text"] for answer in asked for choice in answer["choices"]}
    assert (texts != {choice["text"] for answer in greedy for choice in answer["choices"]}) is draws
    assert (len(texts) > 1) is draws


async def test_a_packages_beams_give_way_to_a_request_that_samples(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    defaults = {"beam_size": 3, "max_tokens": 6, "length_penalty": 2.0, "early_stopping": False}
    async with open_client(with_manifest(stories, tmp_path / "beams", generation=defaults)) as client:
        searched = await generated(client)
        wider = await generated(client, n=5)
        asked: list[dict[str, Any]] = [{"temperature": 0}, {"seed": 1}, {"beam_size": 1}]
        sampled = [await generated(client, **fields) for fields in asked]
        many = await client.post("/generate", json={"prompt": "Once", "n": 60})

    assert "score" in searched["choices"][0] and len(wider["choices"]) == 5
    assert not any("score" in answer["choices"][0] for answer in sampled)
    assert many.status_code == 422 and many.json()["error"]["param"] == "n"  # who asked for no beams


async def test_several_ends_stop_a_choice_and_do_not_come_before_min_tokens(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    async with open_client("stories") as client:
        ids = ids_of(await generated(client, **VARIED))
    folder = with_manifest(stories, tmp_path / "ends", generation={"end_ids": [ids[5]]})
    async with open_client(folder) as client:
        ended = await generated(client, **VARIED)
        longer = await generated(client, **VARIED, min_tokens=9)

    assert ended["choices"][0]["finish_reason"] == "stop" and ids_of(ended) == ids[:6]  # with the end
    assert len(ids_of(longer)) >= 9 and ids[5] not in ids_of(longer)[:9]


async def test_suppressed_tokens_and_bad_words_do_not_come_unless_a_request_says_others(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    async with open_client("stories") as client:
        ids = ids_of(await generated(client, **VARIED))
    generation = {"suppress_ids": [ids[0]], "bad_words": [[ids[1]]]}
    async with open_client(with_manifest(stories, tmp_path / "mute", generation=generation)) as client:
        held = ids_of(await generated(client, **VARIED))
        freed = ids_of(await generated(client, **VARIED, suppress_ids=[]))
        response = await client.post("/generate", json={"prompt": "x", "suppress_ids": [9999]})

    assert len(set(ids)) == len(ids)
    assert not {ids[0], ids[1]} & set(held)
    assert freed[0] == ids[0] and ids[1] not in freed
    assert response.status_code == 422 and response.json()["error"]["param"] == "suppress_ids"


async def test_a_request_that_lets_no_token_come_is_refused_and_one_that_leaves_the_end_ends(
    open_client: OpenClient, stories: TinyPackage, translate: TinyPackage, tmp_path: Path
) -> None:
    every, end = range(stories.manifest.vocab_size), stories.manifest.special_ids.end
    folder = with_manifest(stories, tmp_path / "mute", generation={"bad_words": [[50]]})
    all_but_end, all_but_bad_word = ([token for token in every if token != left] for left in (end, 50))
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/generate", {"prompt": "Once", "suppress_ids": [*every]}),
        ("/generate", {"prompt": "Once", "suppress_ids": all_but_end, "ignore_eos": True, "stream": True}),
        ("/generate", {"prompt": "Once", "suppress_ids": all_but_bad_word, "beam_size": 3}),
        ("/translate", {"input": "Dan", "target": "sv", "suppress_ids": [*range(translate.manifest.vocab_size)]}),
    ]
    async with open_client(folder, "translate") as client:
        refused = [await client.post(path, json=body) for path, body in bodies]
        ended = await generated(client, suppress_ids=all_but_end)

    assert [(answer.status_code, answer.json()["error"]["param"]) for answer in refused] == [(422, "suppress_ids")] * 4
    assert all("leaves none of the 320 tokens" in answer.json()["error"]["message"] for answer in refused)
    assert ended["choices"] == [{"index": 0, "text": "", "finish_reason": "stop"}]


async def test_the_packages_stop_texts_and_lengths_hold(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    async with open_client("stories") as client:
        text = (await generated(client, temperature=0, max_tokens=20))["choices"][0]["text"]
    generation = {"temperature": 0, "stop": [text[8:11]], "max_length": 40}
    async with open_client(with_manifest(stories, tmp_path / "brief", generation=generation)) as client:
        stopped = await generated(client)
        free = await generated(client, stop=[])

    assert stopped["choices"][0]["text"] == text[: text.index(text[8:11])]
    assert free["usage"]["prompt_tokens"] + free["usage"]["completion_tokens"] == 40


async def test_a_search_takes_what_sampling_takes_but_log_probabilities(open_client: OpenClient) -> None:
    async with open_client("stories") as client:
        free = await generated(client, beam_size=3, max_tokens=8)
        held = await generated(
            client, beam_size=3, max_tokens=8, logit_bias={"40": 50}, repetition_penalty=1.5, stop_ids=[7], min_tokens=2
        )
        response = await client.post("/generate", json={"prompt": "x", "beam_size": 2, "logprobs": 1})

    assert held["choices"][0]["text"] != free["choices"][0]["text"]
    assert response.status_code == 422 and response.json()["error"]["param"] == "logprobs"


@pytest.mark.parametrize("field", ["no_repeat_ngram_size", "min_tokens"])
async def test_constraints_are_not_negative(open_client: OpenClient, field: str) -> None:
    async with open_client("stories") as client:
        response = await client.post("/generate", json={"prompt": "x", field: -1})

    assert response.status_code == 422 and response.json()["error"]["param"] == field
