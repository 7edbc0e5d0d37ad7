"""Clients that write null for what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import TEXTS
from tests.service.api.conftest import OpenClient, post

BODIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "/v1/rerank": ({"query": "dog", "documents": TEXTS}, ["return_documents", "truncation"]),
    "/v2/rerank": ({"query": "dog", "documents": TEXTS}, ["return_documents", "top_n"]),
    "/translate": ({"q": TEXTS[2], "source": "en", "target": "sv"}, ["format", "alternatives"]),
    "/v2/translate": ({"text": [TEXTS[2]], "source_lang": "EN", "target_lang": "SV"}, ["show_billed_characters"]),
    "/pipeline/text-generation": ({"inputs": "Once", "parameters": {"do_sample": False}}, ["stream"]),
    "/similarity": (
        {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}, "parameters": {"truncation_direction": None}},
        ["model"],
    ),
    "/v1/completions": ({"prompt": "Once", "temperature": 0, "max_tokens": 2}, ["stream_options", "stop"]),
}


@pytest.mark.parametrize("path", list(BODIES))
async def test_a_null_is_as_good_as_nothing(open_client: OpenClient, path: str) -> None:
    body, fields = BODIES[path]
    async with open_client("ranker", "embed", "translate", "stories") as client:
        plain, with_nulls = [await post(client, path, **body, **more) for more in ({}, dict.fromkeys(fields))]

    for answer in (plain, with_nulls) if isinstance(plain, dict) else ():
        for drawn in ("id", "created"):
            answer.pop(drawn, None)
    assert with_nulls == plain
