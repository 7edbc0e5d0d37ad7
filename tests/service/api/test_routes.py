from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest

from service.engine.beam_search import BeamSearch
from service.engine.runner import Runner
from service.engine.scheduler import Batch, Choice
from tests.service.api.conftest import Client, OpenClient, limits


async def post(client: Client, path: str, **body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def events_of(client: Client, path: str, **body: Any) -> list[Any]:
    response = await client.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_classify_scores_every_label_best_first(client: Client) -> None:
    answer = await post(client, "/classify", input="The film was good.")

    (result,) = answer["results"]
    scores = [label["score"] for label in result["labels"]]
    assert sorted(scores, reverse=True) == scores
    assert sum(scores) == pytest.approx(1)
    assert answer["model"] == "sentiment" and answer["usage"]["prompt_tokens"] > 2


async def test_classify_takes_lists_and_pairs_and_top_k(client: Client) -> None:
    texts = await post(client, "/classify", input=["good", "not good"], top_k=1)
    pairs = await post(client, "/classify", input=[["good", "film"]])

    assert [len(result["labels"]) for result in texts["results"]] == [1, 1]
    assert len(pairs["results"]) == 1


async def test_an_input_is_classified_the_same_alone_and_beside_others(client: Client) -> None:
    texts = ["good", "The film was good and the actors were great.", "The story was not so good, but the dog was."]
    alone = [(await post(client, "/classify", input=text))["results"][0] for text in texts]
    together = (await post(client, "/classify", input=texts))["results"]

    for one, other in zip(alone, together, strict=True):
        assert [label["label"] for label in one["labels"]] == [label["label"] for label in other["labels"]]
        assert one["labels"][0]["score"] == pytest.approx(other["labels"][0]["score"], abs=1e-5)


async def test_classify_cuts_long_texts_only_when_asked(client: Client) -> None:
    long = "good film " * 100
    refused = await client.post("/classify", json={"input": long})
    cut = await post(client, "/classify", input=long, truncate=True)

    assert refused.status_code == 422
    assert "the limit is 64" in refused.json()["error"]["message"]
    assert cut["usage"]["prompt_tokens"] == 64


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


async def test_many_streamed_choices_wait_for_their_turn(client: Client) -> None:
    *pieces, usage = await events_of(client, "/generate", prompt="Once", n=200, max_tokens=2, temperature=0)

    assert {piece["index"] for piece in pieces} == set(range(200))
    assert usage["usage"]["completion_tokens"] == 400


async def test_nothing_stands_before_the_first_id_of_a_prompt(client: Client) -> None:
    answer = await post(client, "/generate", prompt=[40, 41, 42], max_tokens=1, logprobs=0, echo=True)

    tokens = answer["choices"][0]["logprobs"]
    assert [token["id"] for token in tokens[:3]] == [40, 41, 42]
    assert "logprob" not in tokens[0] and tokens[1]["logprob"] < 0


async def test_an_echoed_stream_begins_with_the_prompt(client: Client) -> None:
    body = {"prompt": "Once upon", "max_tokens": 5, "temperature": 0, "echo": True}
    whole = await post(client, "/generate", **body)
    *pieces, _ = await events_of(client, "/generate", **body)

    assert pieces[0]["text"] == "Once upon"
    assert "".join(piece["text"] for piece in pieces) == whole["choices"][0]["text"]


async def test_a_stop_id_ends_a_choice(client: Client) -> None:
    free = await post(client, "/generate", prompt="Once", max_tokens=12, temperature=1.0, seed=1, logprobs=0)
    ids = [token["id"] for token in free["choices"][0]["logprobs"]]
    stopped = await post(client, "/generate", prompt="Once", max_tokens=12, temperature=1.0, seed=1, stop_ids=[ids[6]])

    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] == ids.index(ids[6])


async def test_a_streamed_search_is_the_whole_translation(client: Client) -> None:
    body = {"q": "Dan loves ice cream. Dan loves a dog.", "target": "de", "beam_size": 3, "max_tokens": 12}
    whole = await post(client, "/translate", **body)
    *pieces, _ = await events_of(client, "/translate", **body)

    assert "".join(piece["text"] for piece in pieces) == whole["translatedText"]


async def test_beam_search_gives_n_scored_choices(client: Client) -> None:
    answer = await post(client, "/generate", prompt="Once", max_tokens=5, beam_size=3, n=3)

    scores = [choice["score"] for choice in answer["choices"]]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 3
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]


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


async def test_translate_answers_in_the_shape_it_was_asked(client: Client) -> None:
    single = await post(client, "/translate", q="Dan loves ice cream.", target="sv", max_tokens=8)
    several = await post(client, "/translate", q=["Dan loves ice cream."], source="en", target="sv", max_tokens=8)

    assert isinstance(single["translatedText"], str)
    assert several["translatedText"] == [single["translatedText"]]
    assert "alternatives" not in single


async def test_translate_gives_alternatives_when_asked(client: Client) -> None:
    answer = await post(client, "/translate", q="Dan loves ice cream.", target="sv", max_tokens=8, n_best=3)

    assert len(answer["alternatives"]) == 2


async def test_sentences_are_translated_each_on_its_own_and_joined(client: Client) -> None:
    options = {"target": "sv", "max_tokens": 5}
    one = await post(client, "/translate", q="Dan loves ice cream.", **options)
    two = await post(client, "/translate", q="The dog was good.", **options)
    both = await post(client, "/translate", q="Dan loves ice cream.  The dog was good.\n", **options)

    assert both["translatedText"] == f"{one['translatedText']}  {two['translatedText']}\n"


async def test_a_streamed_translation_is_the_whole_one(client: Client) -> None:
    body = {"q": "Dan loves ice cream. The dog was good.", "target": "de", "beam_size": 1, "max_tokens": 9}
    whole = await post(client, "/translate", **body)
    *pieces, usage = await events_of(client, "/translate", **body)

    assert "".join(piece["text"] for piece in pieces) == whole["translatedText"]
    assert usage == {"usage": whole["usage"]}


async def test_tokens_know_their_characters_and_come_back_as_text(client: Client) -> None:
    text = "The dog was good."
    tokens = (await post(client, "/tokenize", model="translate", input=text))["results"][0]
    back = await post(client, "/detokenize", model="translate", ids=[token["id"] for token in tokens])

    assert back["results"] == [text]
    assert all(0 <= token["start"] < token["end"] <= len(text) for token in tokens)
    assert tokens[-1]["end"] == len(text)


async def test_characters_of_several_bytes_come_back_whole(client: Client) -> None:
    tokens = (await post(client, "/tokenize", model="translate", input="Dan älskar glass 🙂"))["results"][0]
    back = await post(client, "/detokenize", model="translate", ids=[token["id"] for token in tokens])

    assert back["results"] == ["Dan älskar glass 🙂"]


async def test_models_are_listed_with_their_limits_and_figures(client: Client) -> None:
    cards = {card["id"]: card for card in (await client.get("/v1/models")).json()["data"]}

    assert cards.keys() == {"sentiment", "stories", "translate"}
    assert cards["translate"]["target_languages"] == ["de", "fr", "sv"]
    assert cards["sentiment"]["labels"] == ["negative", "positive"]
    assert cards["stories"]["max_positions"] == 128


async def test_probes_and_documents_answer(client: Client) -> None:
    for path in ("/health", "/ready", "/docs", "/openapi.json", "/"):
        assert (await client.get(path)).status_code == 200, path


async def test_the_documents_fetch_nothing_from_elsewhere(client: Client) -> None:
    page = (await client.get("/docs")).text

    assert "swagger-ui-bundle.js" in page
    assert all(address.startswith("http://test/") for address in re.findall(r"https?://[^\"']+", page))


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "words"),
    [
        ("/classify", {}, 422, "input", "required"),
        ("/classify", {"input": []}, 422, "input", "at least one"),
        ("/classify", {"input": 3}, 422, "input", "valid string"),
        ("/classify", {"input": "x", "top_k": 0}, 422, "top_k", "greater than or equal to 1"),
        ("/classify", {"input": "x", "model": "nobody"}, 404, "model", "sentiment (classify)"),
        ("/classify", {"input": "x", "model": "stories"}, 422, "model", "for generate, not for classify"),
        ("/classify", {"input": ["x"] * 257}, 413, "input", "the limit is 256"),
        ("/generate", {"prompt": "x", "temperature": -1}, 422, "temperature", "greater than or equal to 0"),
        ("/generate", {"prompt": "x", "top_p": 0}, 422, "top_p", "greater than 0"),
        ("/generate", {"prompt": "x " * 200}, 422, "prompt", "the limit is 127"),
        ("/generate", {"prompt": "x", "top_k": 10**30}, 422, "top_k", "less than or equal to 1000000"),
        ("/generate", {"prompt": "x", "seed": 10**30}, 422, "seed", "less than"),
        ("/generate", {"prompt": "x", "stop": ["a"] * 17}, 422, "stop", "at most 16 items"),
        ("/generate", {"prompt": "x", "logit_bias": dict.fromkeys(range(301), 1)}, 422, "logit_bias", "at most 300"),
        ("/generate", {"prompt": [99999]}, 422, "prompt", "ids go from 0 to"),
        ("/generate", {"prompt": "x", "stop_ids": [-1]}, 422, "stop_ids", "ids go from 0 to"),
        ("/generate", {"prompt": []}, 422, "prompt", "at least one"),
        ("/generate", {"prompt": "x", "logit_bias": {"99999": 1}}, 422, "logit_bias", "ids go from 0 to"),
        ("/generate", {"prompt": "x", "beam_size": 65}, 422, "beam_size", "the limit is 64"),
        ("/generate", {"prompt": "x", "beam_size": 2, "n": 3}, 422, "n", "at most beam_size = 2"),
        ("/generate", {"prompt": ["x"] * 100, "n": 3}, 413, "prompt", "the limit is 256"),
        ("/translate", {"q": "x"}, 422, "target", "required"),
        ("/translate", {"q": "x", "target": "xx"}, 422, "target", "this model has de, fr, sv"),
        ("/translate", {"q": "x", "target": "de", "source": "fi"}, 422, "source", "this model has auto, en"),
        ("/generate", {"prompt": "x", "beam_size": 2, "logprobs": 1}, 422, "logprobs", "goes with sampling"),
        ("/generate", {"prompt": "x", "beam_size": 2, "stop_ids": [5]}, 422, "stop_ids", "goes with sampling"),
        ("/translate", {"q": "x", "target": "de", "n_best": 2, "stream": True}, 422, "n_best", "can be streamed"),
        ("/translate", {"q": "x", "target": "de", "beam_size": 2, "n_best": 3}, 422, "n_best", "beam_size = 2"),
        ("/translate", {"q": ["x"], "target": "de", "stream": True}, 422, "q", "only a single text"),
        ("/translate", {"q": "x" * 200, "target": "de"}, 422, "a sentence of q", "the limit is 64"),
        ("/tokenize", {"input": "x"}, 422, "model", "model is needed"),
        ("/detokenize", {"model": "stories", "ids": [-1]}, 422, "ids", "ids go from 0 to"),
    ],
)
async def test_bad_requests_name_the_field_and_the_limit(
    client: Client, path: str, body: dict[str, Any], status: int, param: str, words: str
) -> None:
    response = await client.post(path, json=body)

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param), error
    assert words in error["message"]


async def test_half_a_character_is_refused(client: Client) -> None:
    headers = {"content-type": "application/json"}
    response = await client.post("/generate", content=b'{"prompt": "\\ud800"}', headers=headers)

    assert response.status_code == 422
    assert response.json()["error"]["param"] == "prompt"


async def test_a_refused_stream_is_an_ordinary_error(client: Client) -> None:
    response = await client.post("/generate", json={"prompt": [99999], "stream": True})

    assert response.status_code == 422
    assert response.json()["error"]["param"] == "prompt"


async def test_what_is_not_json_is_400(client: Client) -> None:
    response = await client.post("/generate", content='{"prompt":', headers={"content-type": "application/json"})

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "not_json"


async def test_a_body_sent_as_a_form_is_told_what_to_send(client: Client) -> None:
    response = await client.post("/classify", data={"input": "x"})

    assert response.status_code == 422
    assert "application/json" in response.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/generate", 405)])
async def test_unknown_routes_and_methods_have_the_same_error_body(
    client: Client, method: str, path: str, status: int
) -> None:
    response = await client.request(method, path)

    assert response.status_code == status
    assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": 1e-300},
        {"temperature": 10, "top_p": 1e-300, "min_p": 1},
        {"top_k": 1_000_000, "repetition_penalty": 10, "presence_penalty": -2, "frequency_penalty": 2},
        {"logit_bias": {"5": -100, "6": 100}, "seed": 2**63 - 1, "n": 3},
        {"stop": ["", "a", "b"], "min_tokens": 1000},
        {"prompt": "", "max_tokens": 10**9},
        {"prompt": "\x00\ufffd🙂"},
    ],
)
async def test_the_farthest_values_are_answered(client: Client, body: dict[str, Any]) -> None:
    await post(client, "/generate", **{"prompt": "Once", "max_tokens": 5, **body})


async def test_a_text_of_more_sentences_than_the_queue_holds_is_translated(open_client: OpenClient) -> None:
    async with open_client("translate", max_slots=4, max_waiting_sequences=4) as client:
        answer = await post(
            client, "/translate", q="Dan loves ice cream. " * 40, target="sv", max_tokens=2, beam_size=1
        )

    assert answer["usage"]["completion_tokens"] > 40


async def test_unknown_fields_are_tolerated(client: Client) -> None:
    await post(client, "/generate", prompt="x", max_tokens=1, user="somebody", best_of=1)


async def test_a_full_queue_is_429_with_retry_after(open_client: OpenClient) -> None:
    async with open_client("stories", max_slots=1, max_waiting_sequences=1) as client:
        body = {"prompt": "Once", "max_tokens": 50}
        responses = await asyncio.gather(*(client.post("/generate", json=body) for _ in range(8)))

    refused = [response for response in responses if response.status_code == 429]
    assert refused and refused[0].headers["retry-after"] == "1"
    assert refused[0].json()["error"]["code"] == "overloaded"
    assert any(response.status_code == 200 for response in responses)


async def test_a_request_that_takes_too_long_is_504(open_client: OpenClient) -> None:
    async with open_client("stories", settings=limits(request_timeout_s=0.001)) as client:
        response = await client.post("/generate", json={"prompt": "Once", "max_tokens": 100})

    assert response.status_code == 504
    assert response.json()["error"]["code"] == "deadline_exceeded"


async def test_a_deadline_within_a_stream_is_an_event(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Runner.run

    def run_slowly(runner: Runner, batch: Batch) -> list[Choice]:
        time.sleep(0.05)
        return run(runner, batch)

    monkeypatch.setattr(Runner, "run", run_slowly)
    async with open_client("stories", settings=limits(request_timeout_s=1)) as client:
        body = {"prompt": "Once", "max_tokens": 120, "min_tokens": 119, "stream": True}
        response = await client.post("/generate", json=body)

    assert response.status_code == 200
    assert response.text.startswith('data: {"index":0')
    assert response.text.rstrip().split("\n\n")[-1].startswith('event: error\ndata: {"error": {"code": "deadline_exc')


async def test_a_failing_model_tells_the_client_nothing_of_itself(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client("stories") as client:
        monkeypatch.setattr("service.engine.runner.Runner.run", lambda *_: 1 / 0)
        response = await client.post("/generate", json={"prompt": "Once"})

    assert response.status_code == 500
    assert "zero" not in response.text


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_body_too_large_is_413(open_client: OpenClient, is_announced: bool) -> None:
    async def chunks() -> Any:
        for _ in range(20):
            yield b"x" * 100

    async with open_client("stories", settings=limits(max_body_bytes=1000)) as client:
        response = await client.post("/generate", content=b"x" * 2000 if is_announced else chunks())

    assert response.status_code == 413
    assert "1000 bytes" in response.json()["error"]["message"]


async def test_with_api_keys_set_only_probes_are_open(open_client: OpenClient) -> None:
    async with open_client("stories", settings={"api_keys": ["secret"]}) as client:
        body = {"prompt": "Once", "max_tokens": 1}
        none = await client.post("/generate", json=body)
        wrong = await client.post("/generate", json=body, headers={"authorization": "Bearer guess"})
        bearer = await client.post("/generate", json=body, headers={"authorization": "Bearer secret"})
        header = await client.post("/generate", json=body, headers={"x-api-key": "secret"})
        probe = await client.get("/health")
        listing = await client.get("/v1/models")

    assert [none.status_code, wrong.status_code, listing.status_code] == [401, 401, 401]
    assert [bearer.status_code, header.status_code, probe.status_code] == [200, 200, 200]
    assert none.headers["www-authenticate"] == "Bearer"
