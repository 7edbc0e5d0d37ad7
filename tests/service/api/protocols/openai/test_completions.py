from __future__ import annotations

from typing import Any

import pytest

from service.api.protocols.openai.completions import _top
from service.schemas import TokenLogprob, TopLogprob
from tests.conftest import MakePackage
from tests.service.api.conftest import Client, events_of, post
from tests.service.api.protocols.openai.conftest import ids_of, refused

GREEDY: dict[str, Any] = {"max_tokens": 7, "temperature": 0}
SEEDED: dict[str, Any] = {"max_tokens": 20, "temperature": 1.0, "seed": 3}


async def test_a_completion_is_the_native_continuation(client: Client) -> None:
    answer = await post(client, "/v1/completions", model="stories", prompt="Once upon a time", **GREEDY)
    native = await post(client, "/generate", model="stories", prompt="Once upon a time", **GREEDY)

    assert answer["object"] == "text_completion" and answer["id"].startswith("cmpl-") and answer["created"] > 1.7e9
    assert answer["choices"] == [{**choice, "logprobs": None} for choice in native["choices"]]
    prompt = native["usage"]["prompt_tokens"]
    assert answer["usage"] == {"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7}


async def test_prompts_are_texts_or_token_ids_one_or_several(client: Client) -> None:
    texts = ["Once upon", "The dog"]
    ids = [[0, *await ids_of(client, "stories", text)] for text in texts]
    answers = [
        (await post(client, "/v1/completions", prompt=prompt, **GREEDY))["choices"]
        for prompt in (texts[0], texts, ids[0], ids)
    ]

    assert answers[1] == answers[3] and answers[0] == answers[2] == answers[1][:1]
    assert [choice["index"] for choice in answers[1]] == [0, 1]


async def test_every_field_reaches_the_task(client: Client) -> None:
    body: dict[str, Any] = {
        "prompt": "Once",
        **SEEDED,
        "n": 2,
        "top_p": 0.9,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "logit_bias": {"40": -100, "41": 5},
        "stop": ["e"],
        "echo": True,
    }
    answer = await post(client, "/v1/completions", **body, top_k=20, min_p=0.01, user="me")
    native = await post(client, "/generate", **body, top_k=20, min_p=0.01)

    assert answer["choices"] == [{**choice, "logprobs": None} for choice in native["choices"]]
    bare = await post(client, "/generate", prompt="Once", n=2, echo=True, **SEEDED)
    assert bare["choices"] != native["choices"]


async def test_the_best_of_several_are_the_same_whether_or_not_the_prompt_is_told(client: Client) -> None:
    body = {"prompt": "Once upon a time there was a dog", **SEEDED, "n": 2, "best_of": 6}
    plain = (await post(client, "/v1/completions", **body))["choices"]
    echoed = (await post(client, "/v1/completions", **body, echo=True))["choices"]

    assert [choice["text"] for choice in echoed] == [f"{body['prompt']}{choice['text']}" for choice in plain]


async def test_echo_with_logprobs_scores_a_prompt_of_ids(client: Client) -> None:
    ids = [0, *await ids_of(client, "stories", "Once upon a time")]
    body = {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    (choice,) = (await post(client, "/v1/completions", **body))["choices"]
    (native,) = (await post(client, "/generate", **body))["choices"]

    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"] == [token.get("logprob") for token in native["logprobs"]]
    assert len(logprobs["tokens"]) == len(ids) + 1 and logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    rows = zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
    assert all(max(top.values()) >= top[text] >= logprob for text, logprob, top in list(rows)[1:])
    lengths = list(map(len, logprobs["tokens"]))
    assert logprobs["text_offset"] == [sum(lengths[:place]) for place in range(len(lengths))]


async def test_parts_of_characters_are_named_by_their_bytes_and_begin_where_the_character_does(client: Client) -> None:
    body = {"prompt": "é 😀 é", "max_tokens": 0, "echo": True, "logprobs": 2}
    (choice,) = (await post(client, "/v1/completions", **body))["choices"]
    tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
    rows = zip(tokens, choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"], strict=True)

    assert choice["text"] == "é 😀 é"
    assert tokens[:3] == ["", "bytes:\\xc3", "bytes:\\xa9"] and tokens[-2:] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert offsets[:3] == [0, 0, 0] and offsets[-2:] == [4, 4] and offsets == sorted(offsets)
    assert all(top[token] == logprob for token, logprob, top in list(rows)[1:])


async def test_a_streams_parts_of_characters_begin_where_those_of_the_whole_answer_do(client: Client) -> None:
    *_, first, second = await ids_of(client, "stories", "é")
    body = {
        "prompt": "Once",
        "max_tokens": 8,
        "logit_bias": {str(first): 90, str(second): 90},
        "logprobs": 1,
        "seed": 3,
    }
    (choice,) = (await post(client, "/v1/completions", **body))["choices"]
    pieces = [
        piece["choices"][0]["logprobs"] for piece in await events_of(client, "/v1/completions", **body, stream=True)
    ]

    for field, whole in choice["logprobs"].items():
        assert [value for piece in pieces for value in piece[field]] == whole


async def test_what_stands_behind_half_a_character_begins_where_the_text_has_it(client: Client) -> None:
    *_, first, _ = await ids_of(client, "stories", "é")
    body = {"prompt": [first, *await ids_of(client, "stories", "dog")], "max_tokens": 0, "echo": True, "logprobs": 0}
    (choice,) = (await post(client, "/v1/completions", **body))["choices"]
    tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]

    assert tokens[0] == "bytes:\\xc3"
    assert all(
        choice["text"][offset:].startswith(token) for token, offset in list(zip(tokens, offsets, strict=True))[1:]
    )


def test_of_tokens_that_read_alike_the_likeliest_is_told() -> None:
    alike = [TopLogprob(id=place, text="a", logprob=-place) for place in (1, 2)]

    assert _top(TokenLogprob(2, "a", alike, -2.0)) == {"a": -1}


async def test_stop_texts_end_nothing_before_min_tokens(client: Client) -> None:
    body = {"prompt": "Once", "max_tokens": 12, "temperature": 0}
    (free,) = (await post(client, "/v1/completions", **body))["choices"]
    stop = free["text"][3]
    stopped = await post(client, "/v1/completions", **body, stop=stop)
    held = await post(client, "/v1/completions", **body, stop=stop, min_tokens=12)
    searched = await post(client, "/v1/completions", **body, stop=stop, min_tokens=12, beam_size=2)

    assert stopped["choices"][0]["text"] == free["text"].partition(stop)[0]
    assert held["choices"][0]["text"] == free["text"] and held["choices"][0]["finish_reason"] == "length"
    assert searched["usage"]["completion_tokens"] == 12


async def test_too_many_choices_to_choose_among_are_refused_by_their_own_field(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.tasks.generate.MAX_LOGPROBS", 50)
    body = {"prompt": "Once", "max_tokens": 20}
    many = await client.post("/v1/completions", json={**body, "best_of": 6})
    told = await client.post("/v1/completions", json={**body, "logprobs": 3})

    assert [answer.json()["error"]["param"] for answer in (many, told)] == ["best_of", "logprobs"]


async def test_the_best_of_several_are_the_likeliest_by_token(client: Client) -> None:
    body = {"prompt": ["Once", "The dog"], **SEEDED, "logprobs": 0}
    all_ = (await post(client, "/v1/completions", **body, n=6))["choices"]
    best = await post(client, "/v1/completions", **{**body, "logprobs": None}, n=2, best_of=6)
    every = await post(client, "/v1/completions", **{**body, "logprobs": None}, n=6, best_of=6)

    def likelihood(choice: dict[str, Any]) -> float:
        scores: list[float] = choice["logprobs"]["token_logprobs"]
        return sum(scores) / len(scores)

    for prompt in range(2):
        ranked = sorted(all_[6 * prompt : 6 * prompt + 6], key=likelihood, reverse=True)
        texts = [choice["text"] for choice in best["choices"][2 * prompt : 2 * prompt + 2]]
        assert texts == [choice["text"] for choice in ranked[:2]]
        assert [each["text"] for each in every["choices"][6 * prompt : 6 * prompt + 6]] == [
            choice["text"] for choice in ranked
        ]
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert best["choices"][0]["logprobs"] is None
    assert best["usage"]["completion_tokens"] > 2 * 2 * 20  # those that were drawn count


async def test_chunks_are_the_whole_answer_in_pieces(client: Client) -> None:
    body = {"prompt": ["Once", "The dog"], **SEEDED, "n": 2, "logprobs": 2}
    whole = await post(client, "/v1/completions", **body)
    *chunks, last = await events_of(client, "/v1/completions", **body, stream_options={"include_usage": True})

    assert last["choices"] == [] and last["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks)
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in [*chunks, last]}) == 1
    for choice in whole["choices"]:
        mine = [piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in mine) == choice["text"]
        assert [piece["finish_reason"] for piece in mine] == [*[None] * (len(mine) - 1), choice["finish_reason"]]
        for name, values in choice["logprobs"].items():
            assert [value for piece in mine for value in piece["logprobs"][name]] == values


async def test_a_stream_has_its_usage_only_if_asked(client: Client) -> None:
    chunks = await events_of(client, "/v1/completions", prompt="Once", **GREEDY)

    assert all(len(chunk["choices"]) == 1 and "usage" not in chunk for chunk in chunks)


async def test_the_models_ends_may_be_ignored_and_the_requests_own_still_end(
    client: Client, make_package: MakePackage
) -> None:
    native = await post(client, "/generate", prompt="Once", seed=1, max_tokens=12, logprobs=0)
    asked = native["choices"][0]["logprobs"][4]["id"]
    end = make_package("stories").manifest.special_ids.end
    body = {"prompt": "Once", "seed": 1, "max_tokens": 12}
    at_once = await post(client, "/v1/completions", **body, logit_bias={str(end): 100})
    endless = await post(client, "/v1/completions", **body, logit_bias={str(end): 100}, ignore_eos=True)
    stopped = await post(client, "/v1/completions", **body, stop_token_ids=[asked], ignore_eos=True)
    as_asked = await post(client, "/v1/completions", **body, stop_token_ids=[end], ignore_eos=True)
    both = await post(client, "/v1/completions", **body, stop_ids=[asked], stop_token_ids=[end], ignore_eos=True)

    assert at_once["usage"]["completion_tokens"] == 0
    assert endless["usage"]["completion_tokens"] == 12
    assert stopped["choices"][0]["finish_reason"] == "stop" and stopped["usage"]["completion_tokens"] <= 5
    assert both["choices"] == stopped["choices"]
    assert as_asked["choices"] == (await post(client, "/v1/completions", **body))["choices"]


async def test_minus_one_is_all_tokens_and_no_seed_and_seeds_have_a_sign(client: Client) -> None:
    drawn = {"prompt": "Once", "max_tokens": 8, "temperature": 1.0}
    texts = [
        (await post(client, "/v1/completions", **drawn, top_k=top_k, seed=seed))["choices"]
        for top_k, seed in ((0, 5), (-1, 5), (-1, -5), (-1, 2**63 - 5), (-1, -1))
    ]

    assert texts[0] == texts[1] and texts[2] == texts[3]
    unseeded = {**drawn, "max_tokens": 20, "seed": -1, "temperature": 2.0}
    first, second = [(await post(client, "/v1/completions", **unseeded))["choices"] for _ in range(2)]
    assert first != second


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "The end."}, "suffix"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 2, "beam_size": 2}, "best_of"),
        ({"temperature": "hot"}, "temperature"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[5], []]}, "prompt"),
        ({"prompt": [[5], [100_000]]}, "prompt"),
        ({"prompt": [["Once"]]}, "prompt"),
        ({"logit_bias": {"100000": 1}}, "logit_bias"),
        ({"stop_token_ids": [100_000]}, "stop_token_ids"),
        ({"stop_ids": [100_000]}, "stop_ids"),
        ({"response_format": {"type": "json_object", "schema": {"pattern": "("}}}, "response_format"),
        ({"allowed_token_ids": [5]}, "allowed_token_ids"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"add_special_tokens": False}, "add_special_tokens"),
        ({"return_tokens_as_token_ids": True}, "return_tokens_as_token_ids"),
        ({"json_schema": {"type": "object"}}, "json_schema"),
        ({"include_reasoning": False}, "include_reasoning"),
        ({"return_token_ids": True}, "return_token_ids"),
        ({"no_stop_trim": True}, "no_stop_trim"),
        ({"n_probs": 5}, "n_probs"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
    ],
)
async def test_what_is_not_done_is_refused_by_name(client: Client, fields: dict[str, Any], param: str) -> None:
    error = await refused(client, "/v1/completions", **{"prompt": "Once", **GREEDY, **fields})

    assert error["param"] == param


async def test_fields_that_ask_for_nothing_are_passed_over(client: Client) -> None:
    plain = await post(client, "/v1/completions", prompt="Once", **GREEDY)
    harmless: dict[str, Any] = {
        "suffix": None,
        "response_format": {"type": "text"},
        "n": None,
        "stop": None,
        "logprobs": None,
    }
    harmless |= {
        "model": "",
        "add_special_tokens": True,
        "prompt_logprobs": None,
        "skip_special_tokens": True,
        "bad_words": [],
        "include_stop_str_in_output": False,
        "repeat_penalty": 1.0,
        "typical_p": 1,
        "mirostat": 0,
        "include_reasoning": True,
        "n_probs": 0,
    }
    more = await post(client, "/v1/completions", prompt="Once", **GREEDY, **harmless)

    assert more["choices"] == plain["choices"]


@pytest.mark.parametrize(("name", "value"), [("repeat_penalty", 1.1), ("mirostat", 2), ("logits_processors", ["a"])])
async def test_what_other_servers_have_and_would_change_the_answer_is_refused(
    client: Client, name: str, value: object
) -> None:
    error = await refused(client, "/v1/completions", prompt="Once", **{name: value})

    assert error["param"] == name and "leave it out" in error["message"]


async def test_an_error_of_a_stream_is_an_answer_in_openais_form(client: Client) -> None:
    error = await refused(client, "/v1/completions", prompt="x " * 300, stream=True)

    assert "the limit is 127" in error["message"]


@pytest.mark.parametrize("name", ["n_predict", "max_new_tokens"])
async def test_other_servers_names_of_max_tokens_are_passed_over_beside_it_alone(client: Client, name: str) -> None:
    both = await post(client, "/v1/completions", prompt="Once", max_tokens=3, temperature=0, **{name: 5})
    error = await refused(client, "/v1/completions", prompt="Once", **{name: 5})

    assert both["usage"]["completion_tokens"] == 3
    assert "send max_tokens instead" in error["message"]
