from __future__ import annotations

import json
from collections import Counter

import pytest

from loadtests.hostile.bodies import BODY_LIMIT
from loadtests.hostile.processes import MODELS, PACKAGES
from loadtests.hostile.warmup import AT_A_TIME, PROMPT_TOKENS, by_gateway, largest, prompts, requests, warm_up
from model.package import Manifest
from service.engine.prefix_cache import BLOCK_TOKENS
from service.models_file import ModelSettings
from tests.loadtests.hostile.conftest import StandIn, json_answer


def test_every_model_is_asked_for_its_largest_requests_within_the_limit_on_bodies() -> None:
    asked = list(largest())

    assert {question.model for question in asked} == set(MODELS)
    assert all(len(way.body) <= BODY_LIMIT for question in asked for way in question.ways)


def test_prompts_fill_the_prefix_caches_of_two_replicas_even_where_one_gets_a_quarter_of_them() -> None:
    manifest = Manifest.load(PACKAGES / "stories")
    config = manifest.config
    token_bytes = 2 * 4 * config["num_decoder_layers"] * config["d_model"]  # keys and values, float32
    cache_bytes = ModelSettings(package=PACKAGES / "stories").prefix_cache_mib * 2**20
    asked = [question.body["prompt"] for question in prompts()]

    assert len({tuple(prompt[:BLOCK_TOKENS]) for prompt in asked}) == len(asked)
    assert len(asked) / 4 * (PROMPT_TOKENS // BLOCK_TOKENS * BLOCK_TOKENS) * token_bytes >= cache_bytes
    assert manifest.limits.max_positions > PROMPT_TOKENS


def test_a_request_for_the_gateway_says_the_same_where_a_proxy_finds_no_model() -> None:
    for question in largest():
        request = by_gateway(question)
        assert b'"model"' not in request.body
        assert (request.path, json.loads(request.body)["model"]) == (f"/{question.route}", question.model)


async def test_everything_is_asked_several_at_a_time(stand_in: StandIn) -> None:
    await warm_up(stand_in.address, "polite")

    came = Counter(json.dumps(json.loads(seen.body)) for seen in stand_in.seen if seen.is_whole)
    assert came.total() == len(requests()) and len(stand_in.transports) == AT_A_TIME


async def test_what_is_not_answered_is_said(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: json_answer({"error": "too many pixels"}, status=413)

    with pytest.raises(RuntimeError, match=r"413.*too many pixels"):
        await warm_up(stand_in.address, "polite")
