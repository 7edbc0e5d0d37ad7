from __future__ import annotations

import asyncio
import gzip
import json
import time
from typing import Any

import pytest

from service.engine.admission import Admission
from service.engine.batch import Batch, StepChoice
from service.engine.isolation import Failure
from service.engine.runner import Runner
from tests.service.api.conftest import Client, OpenClient, limits, post, series


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "words"),
    [
        ("/classify", {}, 422, "input", "required"),
        ("/classify", {"input": []}, 422, "input", "at least one"),
        ("/classify", {"input": 3}, 422, "input", "valid string"),
        ("/classify", {"input": ["x", 3]}, 422, "input", "valid string"),
        ("/generate", {"messages": [{"content": "x"}]}, 422, "messages", "messages.0.role: Field required"),
        ("/generate", {"prompt": "x", "grammar": {"regx": "a"}}, 422, "grammar", "grammar.regx: Extra inputs"),
        ("/generate", {"prompt": "x", "grammar": {"JSON": 1}}, 422, "grammar", "grammar.JSON: Extra inputs"),
        ("/generate", {"messages": [{"content": 3}]}, 422, "messages", "messages.0.role: Field required"),
        ("/v1/decisions", {"input": "x", "questions": [{"type": "y" * 5000}]}, 400, "questions", "tags: 'predicate'"),
        (
            "/v1/decisions",
            {"input": "x", "questions": [{"type": "choice"}]},
            400,
            "questions",
            "questions.0.instructions",
        ),
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
        ("/generate", {"prompt": "x", "beam_size": 65}, 422, "beam_size", "the limit is 48"),
        ("/generate", {"prompt": "x", "beam_size": 2, "n": 3}, 422, "n", "at most beam_size = 2"),
        ("/generate", {"prompt": ["x"] * 100, "n": 3}, 413, "prompt", "the limit is 256"),
        ("/generate", {"prompt": ["x"], "n": 257}, 413, "n", "n asks for 257 answers"),
        ("/generate", {"prompt": "x", "n": 3, "best_of": 2}, 422, "best_of", "best_of is 2, less than n, 3"),
        ("/generate", {"prompt": "x", "n": 2, "best_of": 300}, 413, "best_of", "best_of asks for 300 answers"),
        ("/translate", {"input": "x"}, 422, "target", "required"),
        ("/translate", {"input": "x", "target": "xx"}, 422, "target", "this model has de, fr, sv, en"),
        (
            "/translate",
            {"input": "x", "target": "de", "source": "fi"},
            422,
            "source",
            "this model has auto, en, de, fr, sv",
        ),
        ("/translate", {"input": "x", "target": "fr", "source": "de"}, 422, "target", "translates en to de, en to fr"),
        ("/translate", {"input": "x", "target": "en", "source": "en"}, 422, "target", "translates en to de, en to fr"),
        ("/generate", {"prompt": "x", "beam_size": 2, "logprobs": 1}, 422, "logprobs", "goes with sampling"),
        ("/translate", {"input": "x", "target": "de", "n_best": 2, "stream": True}, 422, "n_best", "can be streamed"),
        ("/translate", {"input": "x", "target": "de", "beam_size": 2, "n_best": 3}, 422, "n_best", "beam_size = 2"),
        ("/translate", {"input": ["x"], "target": "de", "stream": True}, 422, "input", "only a single text"),
        ("/translate", {"input": "Hi! " * 1025, "target": "sv"}, 413, "input", "more than 1024 sentences"),
        ("/translate", {"input": ["Hi! " * 600] * 2, "target": "sv"}, 413, "input", "more than 1024 sentences"),
        ("/classify", {"model": "sentiment", "input": "x" * 5000}, 422, "input", "64 tokens, or 4096"),
        ("/classify", {"model": "sentiment", "input": ["a", "x " * 99]}, 422, "input", "tokens in text 2 of 2"),
        ("/generate", {"prompt": "x" * 10000}, 422, "prompt", "127 tokens, or 8128"),
        ("/generate", {"prompt": "x", "stop": ["x" * 257]}, 422, "stop", "at most 256 characters"),
        ("/generate", {"prompt": "x", "n": 120, "logprobs": 20}, 413, "logprobs", "the limit is 136000"),
        ("/tokenize", {"model": "stories", "input": "x" * 40000}, 413, "input", "the limit is 32768"),
        ("/detokenize", {"model": "stories", "ids": [[5] * 6000] * 6}, 413, "ids", "the limit is 32768"),
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
    assert response.headers.get("allow") == ("POST" if status == 405 else None)  # RFC 9110, 15.5.6


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", "GET, HEAD, POST"),
        ("/languages", "GET, HEAD"),
        ("/models/stories/generate", "POST"),
        ("/docs", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_all_that_the_path_answers(client: Client, path: str, allowed: str) -> None:
    response = await client.put(path)

    assert (response.status_code, response.headers["allow"]) == (405, allowed)


async def test_a_base_url_of_openais_clients_without_its_end_is_told(client: Client) -> None:
    for path in ("/chat/completions", "/models/stories/completions"):
        response = await client.post(path, json={})
        assert response.status_code == 404
        assert f"there is no route {path}; a base URL of OpenAI's clients ends with /v1" in response.text


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
    async with open_client("translate", max_slots=4, max_waiting_slots=4) as client:
        answer = await post(
            client, "/translate", input="Dan loves ice cream. " * 40, target="sv", max_tokens=2, beam_size=1
        )

    assert answer["usage"]["completion_tokens"] > 40


async def test_a_body_that_is_compressed_is_refused_by_the_name_of_its_encoding(client: Client) -> None:
    body = json.dumps({"input": "x"}).encode()
    packed = await client.post("/classify", content=gzip.compress(body), headers={"content-encoding": "gzip"})
    several = await client.post("/classify", content=body, headers={"content-encoding": "identity, BR"})
    plain = await client.post("/classify", content=body, headers={"content-encoding": "utf-8"})
    empty = await client.get("/v1/models", headers={"content-encoding": "gzip"})

    assert packed.status_code == 415 and packed.headers["accept-encoding"] == "identity"
    assert packed.json()["error"]["message"] == "Content-Encoding 'gzip' is not supported; send the body as it is"
    assert (several.status_code, plain.status_code, empty.status_code) == (415, 200, 200)


async def test_unknown_fields_are_tolerated(client: Client) -> None:
    await post(client, "/generate", prompt="x", max_tokens=1, user="somebody", best_of=1)


@pytest.mark.parametrize(
    ("path", "fields", "slip", "meant"),
    [
        ("/generate", {"prompt": "x", "max_token": 5}, "max_token", "max_tokens"),
        ("/generate", {"prompt": "x", "max_new_tokens": 5}, "max_new_tokens", "max_tokens"),
        ("/generate", {"promt": "x"}, "promt", "prompt"),
        ("/classify", {"inputs": "x"}, "inputs", "input"),
        ("/embed", {"input": "x", "dimension": 8}, "dimension", "dimensions"),
        ("/translate", {"input": "x", "source": "en", "targets": "sv"}, "targets", "target"),
        ("/generate", {"prompt": "x", "num_beams": 4}, "num_beams", "beam_size"),
        ("/translate", {"input": "x", "source": "en", "target": "sv", "num_beams": 1}, "num_beams", "beam_size"),
        ("/generate", {"prompt": "x", "max_completion_tokens": 1}, "max_completion_tokens", "max_tokens"),
        ("/generate", {"prompt": "x", "stop_sequences": ["y"]}, "stop_sequences", "stop"),
        ("/classify", {"input": "x", "function_to_apply": "none"}, "function_to_apply", "activation"),
        ("/classify", {"input": "x", "candidate_labels": ["a", "b"]}, "candidate_labels", "labels"),
        ("/classify", {"input": "x", "truncation": True}, "truncation", "truncate"),
        ("/rerank", {"query": "x", "documents": ["y"], "top_k": 1}, "top_k", "top_n"),
        ("/rerank", {"query": "x", "documents": ["y"], "raw_scores": True}, "raw_scores", "activation"),
        ("/rerank", {"query": "x", "documents": ["y"], "return_text": True}, "return_text", "return_documents"),
        ("/embed", {"input": "x", "truncate_dim": 8}, "truncate_dim", "dimensions"),
        ("/translate", {"input": "x", "target": "sv", "num_return_sequences": 2}, "num_return_sequences", "n_best"),
        ("/generate", {"prompt": "x", "num_return_sequences": 2}, "num_return_sequences", "n"),
        ("/generate", {"messages": [], "enable_thinking": False}, "enable_thinking", "chat_template_kwargs"),
        ("/translate", {"input": "x", "target": "sv", "source_lang": "de"}, "source_lang", "source"),
        ("/translate", {"input": "x", "tgt_lang": "sv"}, "tgt_lang", "target"),
        ("/generate", {"prompt": "x", "stop_token_ids": [5]}, "stop_token_ids", "stop_ids"),
        ("/generate", {"prompt": "x", "do_sample": False}, "do_sample", "temperature"),
        ("/generate", {"prompt": "x", "json_schema": {"type": "object"}}, "json_schema", "grammar"),
        ("/embed", {"input": "x", "normalize_embeddings": False}, "normalize_embeddings", "normalize"),
        ("/embed", {"input": "x", "truncation_direction": "left"}, "truncation_direction", "truncation_side"),
        (
            "/classify",
            {"input": "x", "text_pair": "y"},
            "text_pair",
            "input, of which each pair of texts is one: [[text, text_pair]]",
        ),
        ("/answer", {"question": "x", "context": "y", "doc_stride": 8}, "doc_stride", "overlap"),
        (
            "/answer",
            {"question": "x", "context": "y", "handle_impossible_answer": True},
            "handle_impossible_answer",
            "no_answer",
        ),
    ],
)
async def test_a_field_that_is_nearly_known_is_a_slip(
    client: Client, path: str, fields: dict[str, Any], slip: str, meant: str
) -> None:
    response = await client.post(path, json=fields)

    assert response.status_code == 422
    assert response.json()["error"]["param"] == slip
    assert response.json()["error"]["message"] == f"{slip} is not known here; did you mean {meant}?"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/classify", {"input": "x", "top_p": 0.9, "top_n": 2}),
        (
            "/generate",
            {"prompt": "x", "max_tokens": 1, "encoder_no_repeat_ngram_size": 0, "top_logprobs": 2, "top_n": 1},
        ),
        ("/generate", {"prompt": "x", "max_tokens": 1, "max_token": None}),
        ("/generate", {"prompt": "x", "max_tokens": 1, "num_return_sequences": 1, "response_format": {"type": "text"}}),
        ("/generate", {"prompt": "x", "max_tokens": 1, "top_k": 1, "do_sample": False, "structured_outputs": {}}),
        ("/translate", {"input": "x", "target": "sv", "max_tokens": 1, "src_lang": "auto", "alternatives": 0}),
        ("/tokenize", {"input": "x", "skip_special_tokens": True}),
        ("/translate", {"input": "x", "source": "en", "target": "sv", "formality": "more", "\ud800targets": 1}),
    ],
)
async def test_what_others_call_something_else_is_no_slip(client: Client, path: str, fields: dict[str, Any]) -> None:
    response = await client.post(path, content=json.dumps(fields), headers={"content-type": "application/json"})

    assert "did you mean" not in response.text and response.status_code in {200, 404}


async def test_both_names_of_a_field_may_be_sent(client: Client) -> None:
    answer = await post(client, "/generate", prompt="x", max_tokens=1, max_new_tokens=9)

    assert answer["usage"]["completion_tokens"] <= 1


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_full_queue_is_429_with_retry_after(open_client: OpenClient, is_stream: bool) -> None:
    async with open_client("stories", max_slots=1, max_waiting_slots=1) as client:
        body = {"prompt": "Once", "max_tokens": 50, "stream": is_stream}
        responses = await asyncio.gather(*(client.post("/generate", json=body) for _ in range(8)))

    refused = [response for response in responses if response.status_code == 429]
    assert refused and refused[0].headers["retry-after"] == "1"
    assert refused[0].json()["error"]["code"] == "overloaded"
    assert any(response.status_code == 200 for response in responses)


async def test_a_refused_request_has_cost_nothing(open_client: OpenClient, encoded: list[str]) -> None:
    async with open_client("translate", max_slots=4, max_waiting_slots=4, batch_tokens=64) as client:
        encoded.clear()  # what was read as the model was opened
        first = asyncio.create_task(client.post("/translate", json={"input": ["Dan. " * 30] * 4, "target": "sv"}))
        while not encoded and not first.done():  # noqa: ASYNC110  # the tokenizer has no event
            await asyncio.sleep(0.001)
        refused = await client.post("/translate", json={"input": "nobody reads this", "target": "sv"})
        answered = await first

    assert (refused.status_code, answered.status_code) == (429, 200)
    assert "nobody reads this" not in encoded


async def test_an_admitted_request_is_finished_however_many_slots_it_brings(open_client: OpenClient) -> None:
    async with open_client("stories", max_slots=4, max_waiting_slots=4) as client:
        answer = await post(client, "/generate", prompt="Once", max_tokens=3, n=100, seed=1)
        alone = await post(client, "/generate", prompt="Once", max_tokens=3, n=1, seed=1)

    assert len(answer["choices"]) == 100 and answer["choices"][0]["text"] == alone["choices"][0]["text"]


async def test_a_request_that_takes_too_long_is_504(open_client: OpenClient) -> None:
    async with open_client("stories", settings=limits(request_timeout_s=0.001)) as client:
        response = await client.post("/generate", json={"prompt": "Once", "max_tokens": 100})

    assert response.status_code == 504 and response.headers["X-Should-Retry"] == "false"
    assert response.json()["error"]["code"] == "deadline_exceeded"


async def test_a_deadline_within_a_stream_is_an_event(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Runner.run

    def run_slowly(runner: Runner, batch: Batch) -> list[StepChoice | Failure | None]:
        time.sleep(0.05)
        return run(runner, batch)

    monkeypatch.setattr(Runner, "run", run_slowly)
    async with open_client("stories", settings=limits(request_timeout_s=3)) as client:
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

    assert response.status_code == 503 and "try again" in response.text  # as nothing can be computed, whatever is sent
    assert "zero" not in response.text


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


@pytest.mark.parametrize("path", ["/generate", "/tokenize", "/detokenize"])
async def test_a_full_queue_refuses_a_request_before_it_is_read(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with open_client("stories") as client:
        monkeypatch.setattr(Admission, "is_full_for", lambda *_: True)
        response = await client.post(path, content=b"not even JSON")

        assert response.status_code == 429 and response.headers["Retry-After"]
        assert (await client.get("/health")).status_code == 200
        metrics = series((await client.get("/metrics")).text)
        assert metrics['rejections_total{model="stories",reason="overloaded"}'] == 1
