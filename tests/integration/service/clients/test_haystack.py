"""Haystack's OpenAI components against the running service."""

from __future__ import annotations

from typing import Any

import pytest
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage, StreamingChunk
from haystack.utils import Secret

from tests.conftest import TEXTS
from tests.integration.service.clients.posting import post

pytestmark = pytest.mark.integration


def address(service: str) -> dict[str, Any]:
    return {"api_base_url": f"{service}/v1", "api_key": Secret.from_token("any"), "max_retries": 0}


def test_a_text_is_embedded(service: str) -> None:
    embedder = OpenAITextEmbedder(model="embed", **address(service))

    assert embedder.run(TEXTS[0])["embedding"] == post(f"{service}/embed", input=TEXTS[0])["embeddings"][0]


def test_a_model_chats(service: str) -> None:
    pieces: list[StreamingChunk] = []
    options = {"temperature": 0, "max_completion_tokens": 12}
    chat = OpenAIChatGenerator(model="stories", generation_kwargs=options, **address(service))
    asked = [ChatMessage.from_user("Who is Dan?")]
    (whole,) = chat.run(asked)["replies"]
    chat.run(asked, streaming_callback=pieces.append)

    assert "".join(piece.content for piece in pieces) == whole.text
