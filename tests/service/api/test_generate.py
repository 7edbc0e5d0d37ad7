from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.engine.beam_search import BeamSearch
from service.metrics_engine import FLUSH_S
from tests.service.api.conftest import Client, OpenClient, events_of, limits, post, series


async def test_generate_continues_a_prompt(client: Client) -> None:
    answer = await post(client, "/generate", prompt="Once upon a time", max_tokens=7, temperature=0)

    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 7
    assert "logprobs" not in choice


async def test_a_seed_repeats_itself_and_choices_differ(client: Client) -> None:
    body = {"prompt": "Once", "max_tokens": 20, "temperature": 1.0, "seed": 5, "n": 3}
    first, second = await asyncio.gather(post(client, "/generate", **body), post(client, "/generate", **body))

    texts = [choice["text"] for choice in first["choices"]]
    assert texts == [choice["text"] for choice in second["choices"]]
    assert len(set(texts)) == 3


async def test_several_prompts_and_choices_are_numbered_in_order(client: Client) -> None:
    body = {"max_tokens": 3, "temperature": 0, "n": 2}
    both = await post(client, "/generate", prompt=["Once", "The dog"], **body)
    alone = await post(client, "/generate", prompt="The dog", **body)

    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in both["choices"][2:]] == [choice["text"] for choice in alone["choices"]]


async def test_prompts_may_be_token_ids(client: Client) -> None:
    tokens = await post(client, "/tokenize", model="stories", input="Once upon")
    ids = [token["id"] for token in tokens["results"][0]]
    by_text = await post(client, "/generate", prompt="Once upon", max_tokens=5, temperature=0)
    by_ids = await post(client, "/generate", prompt=[0, *ids], max_tokens=5, temperature=0)

    assert by_ids["choices"] == by_text["choices"]


async def test_streamed_text_is_the_whole_text(client: Client) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 1.0, "seed": 3, "n": 2}
    whole = await post(client, "/generate", **body)
    *pieces, usage = await events_of(client, "/generate", **body)

    for choice in whole["choices"]:
        mine = [piece for piece in pieces if piece["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in mine) == choice["text"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
    assert usage == {"usage": whole["usage"]}


async def test_a_stop_text_ends_a_choice_and_is_left_out(client: Client) -> None:
    free = await post(client, "/generate", prompt="Once", max_tokens=30, temperature=1.0, seed=1)
    text = free["choices"][0]["text"]
    stop = text[10:13]
    stopped = await post(client, "/generate", prompt="Once", max_tokens=30, temperature=1.0, seed=1, stop=[stop])

    assert stopped["choices"][0] == {"index": 0, "text": text[: text.index(stop)], "finish_reason": "stop"}


async def test_logprobs_come_with_alternatives(client: Client) -> None:
    answer = await post(client, "/generate", prompt="Once", max_tokens=4, temperature=0, logprobs=3)

    tokens = answer["choices"][0]["logprobs"]
    assert len(tokens) == 4
    for token in tokens:
        assert token["top"][0]["id"] == token["id"]  # greedy takes the likeliest
        assert [alternative["logprob"] for alternative in token["top"]] == sorted(
            (alternative["logprob"] for alternative in token["top"]), reverse=True
        )


async def test_echo_begins_with_the_prompt_and_its_logprobs(client: Client) -> None:
    plain = await post(client, "/generate", prompt="Once upon a", max_tokens=3, temperature=0, logprobs=1)
    echoed = await post(client, "/generate", prompt="Once upon a", max_tokens=3, temperature=0, logprobs=1, echo=True)

    (choice,), (without,) = echoed["choices"], plain["choices"]
    assert choice["text"] == "Once upon a" + without["text"]
    assert choice["logprobs"][-3:] == without["logprobs"]
    assert "".join(token["text"] for token in choice["logprobs"][:-3]).replace(" ", "") == "Onceupona"
    assert all(token["logprob"] <= 0 for token in choice["logprobs"])
    assert echoed["usage"] == plain["usage"]


async def test_an_echoed_text_is_the_one_that_was_sent(client: Client) -> None:
    prompt = "  A \ufb01ne\tdog, two  spaces "  # none of which the tokenizer gives back
    body = {"prompt": prompt, "max_tokens": 3, "temperature": 0, "echo": True}

    for asked in (body, {**body, "beam_size": 2}, {**body, "logprobs": 0}):
        (choice,) = (await post(client, "/generate", **asked))["choices"]
        assert choice["text"].startswith(prompt) and len(choice["text"]) > len(prompt)


@pytest.mark.parametrize("prompt", ["Once upon a time", [40, 41, 42]])
async def test_a_prompt_is_scored_without_a_token_behind_it(client: Client, prompt: str | list[int]) -> None:
    body = {"prompt": prompt, "n": 2, "temperature": 0, "echo": True, "logprobs": 1}
    longer = await post(client, "/generate", **body, max_tokens=1)
    alone = await post(client, "/generate", **body, max_tokens=0)
    *pieces, usage = await events_of(client, "/generate", **body, max_tokens=0)

    assert alone["usage"] == usage["usage"] == {**longer["usage"], "completion_tokens": 0}
    for choice, other in zip(alone["choices"], longer["choices"], strict=True):
        own = [piece for piece in pieces if piece["index"] == choice["index"]]
        assert other["text"].startswith(choice["text"]) and choice["finish_reason"] == "length"
        assert choice["logprobs"] == other["logprobs"][:-1]
        assert "".join(piece["text"] for piece in own) == choice["text"] and own[-1]["finish_reason"] == "length"


async def test_a_hypothesis_ends_where_it_has_a_stop_text(client: Client) -> None:
    body = {"prompt": "Once", "max_tokens": 30, "beam_size": 4, "n": 4}
    free = await post(client, "/generate", **body)
    stop = free["choices"][0]["text"][4]  # of the likeliest
    answer = await post(client, "/generate", **body, stop=stop)
    sampled = await post(client, "/generate", prompt="Once", max_tokens=30, temperature=0, stop=stop)

    stopped = [choice for choice in answer["choices"] if choice["finish_reason"] == "stop"]
    assert stopped and all(stop not in choice["text"] for choice in answer["choices"])
    assert len({choice["text"] for choice in answer["choices"]}) > 1
    assert answer["usage"]["completion_tokens"] < free["usage"]["completion_tokens"]
    assert sampled["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("more", [{}, {"echo": True, "beam_size": 2}])
async def test_no_token_at_all_is_refused_where_no_prompt_is_scored(client: Client, more: dict[str, Any]) -> None:
    response = await client.post("/generate", json={"prompt": "Once", "max_tokens": 0, **more})

    assert response.status_code in {400, 422} and response.json()["error"]["param"] == "max_tokens"


async def test_text_that_may_become_a_stop_text_is_held_back_without_empty_events(client: Client) -> None:
    body: dict[str, Any] = {"prompt": "Once", "max_tokens": 12, "ignore_eos": True, "temperature": 0}
    text = (await post(client, "/generate", **body))["choices"][0]["text"]
    *pieces, _ = await events_of(client, "/generate", **body, stop=f"{text[2:12]}\u2603")

    assert "".join(piece["text"] for piece in pieces) == text
    assert len(pieces) < 12 and all(piece["text"] or "finish_reason" in piece for piece in pieces)


async def test_many_streamed_choices_wait_for_their_turn(client: Client) -> None:
    *pieces, usage = await events_of(client, "/generate", prompt="Once", n=200, max_tokens=2, temperature=0)

    assert {piece["index"] for piece in pieces} == set(range(200))
    assert usage["usage"]["completion_tokens"] == 400


async def test_nothing_stands_before_the_first_id_of_a_prompt(client: Client) -> None:
    answer = await post(client, "/generate", prompt=[40, 41, 42], max_tokens=1, logprobs=0, echo=True)

    tokens = answer["choices"][0]["logprobs"]
    assert [token["id"] for token in tokens[:3]] == [40, 41, 42]
    assert "logprob" not in tokens[0] and tokens[1]["logprob"] < 0


async def test_log_probabilities_of_an_echoed_prompt_count_towards_the_limit(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.tasks.generate.MAX_LOGPROBS", 50)
    body = {"prompt": [5] * 60, "max_tokens": 1, "logprobs": 0}
    plain, echoed = [await client.post("/generate", json={**body, "echo": echo}) for echo in (False, True)]

    assert (plain.status_code, echoed.status_code) == (200, 413)


async def test_an_echoed_stream_begins_with_the_prompt(client: Client) -> None:
    body = {"prompt": "Once upon", "max_tokens": 5, "temperature": 0, "echo": True}
    whole = await post(client, "/generate", **body)
    *pieces, _ = await events_of(client, "/generate", **body)

    assert pieces[0]["text"] == "Once upon"
    assert "".join(piece["text"] for piece in pieces) == whole["choices"][0]["text"]


async def test_nothing_is_decoded_behind_a_stop_text(open_client: OpenClient) -> None:
    body: dict[str, Any] = {"prompt": "Once", "max_tokens": 110, "ignore_eos": True, "temperature": 0}
    async with open_client("stories") as client:
        whole = await post(client, "/generate", **{**body, "max_tokens": 12})
        stop = whole["choices"][0]["text"][4:8]
        await post(client, "/generate", **body, stop=stop)
        await asyncio.sleep(2 * FLUSH_S)  # until all of it is counted
        seen = series((await client.get("/metrics")).text)

    assert seen['generated_tokens_total{model="stories"}'] < 12 + 30


async def test_a_stream_may_ask_for_as_many_choices_as_an_answer(client: Client) -> None:
    body = {"prompt": "Once", "n": 257, "max_tokens": 1}
    for stream in (False, True):
        response = await client.post("/generate", json={**body, "stream": stream})
        assert response.status_code == 413 and "the limit is 256" in response.json()["error"]["message"]


async def test_a_stop_id_ends_a_choice(client: Client) -> None:
    free = await post(client, "/generate", prompt="Once", max_tokens=12, temperature=1.0, seed=1, logprobs=0)
    ids = [token["id"] for token in free["choices"][0]["logprobs"]]
    stopped = await post(client, "/generate", prompt="Once", max_tokens=12, temperature=1.0, seed=1, stop_ids=[ids[6]])

    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] == ids.index(ids[6])


async def test_beam_search_gives_n_scored_choices(client: Client) -> None:
    answer = await post(client, "/generate", prompt="Once", max_tokens=5, min_tokens=5, beam_size=3, n=3)

    assert answer["usage"]["completion_tokens"] == 3 * 5
    scores = [choice["score"] for choice in answer["choices"]]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 3
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]


async def test_a_search_that_the_memory_could_not_hold_is_refused(open_client: OpenClient) -> None:
    async with open_client("stories", kv_cache_mib=1, settings=limits(request_timeout_s=3)) as client:
        refused = await client.post("/generate", json={"prompt": "Once", "beam_size": 48, "max_tokens": 120})

    error = refused.json()["error"]
    assert refused.status_code == 422 and error["param"] == "beam_size"
    assert "tokens of the KV cache" in error["message"]


async def test_a_search_for_several_choices_runs_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0
    start = BeamSearch.__init__

    def counted(search: BeamSearch, *args: Any) -> None:
        nonlocal searches
        searches += 1
        start(search, *args)

    monkeypatch.setattr(BeamSearch, "__init__", counted)
    await post(client, "/generate", prompt=["Once", "The dog"], max_tokens=5, beam_size=3, n=3)

    assert searches == 2


async def test_logprobs_have_the_end_which_is_no_part_of_the_text(client: Client) -> None:
    body = {"prompt": "Once", "max_tokens": 12, "temperature": 1.0, "seed": 1, "logprobs": 1}
    free = (await post(client, "/generate", **body))["choices"][0]["logprobs"]
    ended = await post(client, "/generate", **body, stop_ids=[free[0]["id"]])
    *pieces, _ = await events_of(client, "/generate", **body, stop_ids=[free[0]["id"]])

    (choice,) = ended["choices"]
    assert choice["text"] == "" and choice["logprobs"] == free[:1]
    assert ended["usage"]["completion_tokens"] == 0
    assert [token for piece in pieces for token in piece["logprobs"]] == free[:1]
