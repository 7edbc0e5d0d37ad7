"""At a model's address and at the service's own the fields of a body say which pipeline's it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import TEXTS
from tests.service.api.conftest import Client, OpenClient, post
from tests.service.api.protocols.huggingface.conftest import piped


async def test_at_a_models_address_its_task_and_the_body_choose_the_pipeline(client: Client) -> None:
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "sentiment": ("text-classification", {"inputs": TEXTS[0]}),
        "embed": ("feature-extraction", {"inputs": TEXTS[0], "normalize": False}),
        "entities": ("token-classification", {"inputs": TEXTS[2], "parameters": None}),
        "answers": ("question-answering", {"inputs": {"question": "Who?", "context": TEXTS[2]}}),
        "encoder": ("fill-mask", {"inputs": "The [MASK]."}),
        "stories": ("text-generation", {"inputs": "Once", "parameters": {"max_new_tokens": 4, "do_sample": False}}),
        "translate": ("translation", {"inputs": "Dan.", "parameters": {"src_lang": "en", "tgt_lang": "sv"}}),
    }
    for model, (pipeline, body) in bodies.items():
        assert await post(client, "/", model=model, **body) == await post(client, f"/pipeline/{pipeline}", **body)


async def test_fields_that_nobody_knows_are_passed_over_whatever_they_are_called(client: Client) -> None:
    body = {"model": "sentiment", "inputs": TEXTS[0]}
    others = dict.fromkeys(("kind", "self", "cls", "values", "model_config", "__class__"), 1)

    assert await post(client, "/", **body, **others) == await post(client, "/", **body)


@pytest.mark.parametrize(
    ("body", "pipeline"),
    [
        (
            {"inputs": "Once", "stream": False, "parameters": {"max_new_tokens": 3, "do_sample": False}},
            "text-generation",
        ),
        ({"inputs": "Dan.", "parameters": {"src_lang": "en", "tgt_lang": "sv"}}, "translation"),
        ({"inputs": TEXTS[0], "normalize": True}, "feature-extraction"),
        ({"inputs": TEXTS[2], "parameters": {"aggregation_strategy": "simple"}}, "token-classification"),
        ({"inputs": "The [MASK].", "parameters": {"targets": ["dog"]}}, "fill-mask"),
        ({"inputs": {"question": "Who?", "context": TEXTS[2]}}, "question-answering"),
        ({"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}}, "sentence-similarity"),
        (
            {"inputs": TEXTS[0], "parameters": {"candidate_labels": ["dog"], "targets": None}},
            "zero-shot-classification",
        ),
        ({"inputs": TEXTS[0], "parameters": {"top_k": 1}}, "text-classification"),
    ],
)
async def test_without_a_model_the_fields_choose_the_pipeline_and_else_it_is_the_first_models(
    client: Client, body: dict[str, Any], pipeline: str
) -> None:
    assert await post(client, "/", **body) == await post(client, f"/pipeline/{pipeline}", **body)


async def test_what_asks_for_nothing_says_nothing_of_a_model_that_is_named(client: Client) -> None:
    body = {"inputs": TEXTS[0], "stream": False, "parameters": {"details": False}}

    assert await post(client, "/models/sentiment", **body) == await piped(client, "text-classification", TEXTS[0])


async def test_the_first_model_of_texts_answers_though_one_of_images_comes_before(open_client: OpenClient) -> None:
    async with open_client("fashion", "sentiment") as client:
        assert await post(client, "/", inputs=TEXTS[0]) == await post(client, "/models/sentiment", inputs=TEXTS[0])


async def test_a_model_that_has_not_the_pipeline_of_the_fields_says_so(client: Client) -> None:
    generation = {"inputs": "a", "stream": False, "parameters": {"max_new_tokens": 3}}
    refused = await client.post("/models/embed", json=generation)
    named = await client.post("/", json={**generation, "model": "sentiment"})

    assert refused.status_code == 404 and "no model for generate here; there are embed" in refused.json()["error"]
    assert named.status_code == 422 and "'sentiment' is for classify, not for generate" in named.json()["error"]
