"""LangChain's OpenAI classes against the running service."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from langchain_openai.decisions import Choice, OpenAIDecisions, Predicate

from tests.conftest import TEXTS
from tests.integration.service.clients.posting import post

pytestmark = pytest.mark.integration


def address(service: str) -> dict[str, Any]:
    return {"base_url": f"{service}/v1", "api_key": "any", "max_retries": 0}


def test_documents_are_embedded(service: str) -> None:
    # Otherwise it sends ids of OpenAI's own tokenizer.
    embeddings = OpenAIEmbeddings(model="embed", check_embedding_ctx_length=False, **address(service))

    native = post(f"{service}/embed", input=TEXTS)["embeddings"]
    assert embeddings.embed_documents(TEXTS) == native
    assert embeddings.embed_query(TEXTS[0]) == pytest.approx(native[0], abs=1e-5)


def test_a_model_chats(service: str) -> None:
    chat = ChatOpenAI(model="stories", temperature=0, max_completion_tokens=12, **address(service))
    whole = chat.invoke("Who is Dan?")
    pieces = list(chat.stream("Who is Dan?"))

    assert "".join(str(piece.content) for piece in pieces) == whole.content
    assert whole.response_metadata["token_usage"]["completion_tokens"] == 12


def test_a_model_responds(service: str) -> None:
    model = ChatOpenAI(
        model="stories", temperature=0, max_completion_tokens=12, use_responses_api=True, **address(service)
    )
    whole = model.invoke([("system", "Be kind."), ("user", "Who is Dan?")])
    pieces = list(model.stream([("system", "Be kind."), ("user", "Who is Dan?")]))

    assert "".join(piece.text for piece in pieces) == whole.text != ""
    assert whole.usage_metadata and whole.usage_metadata["output_tokens"] == 12


def test_a_model_completes(service: str) -> None:
    model = OpenAI(model="stories", temperature=0, max_tokens=12, **address(service))
    native = post(f"{service}/generate", prompt="Once", temperature=0, max_tokens=12)

    assert model.invoke("Once") == native["choices"][0]["text"]
    assert "".join(model.stream("Once")) == native["choices"][0]["text"]


@pytest.mark.filterwarnings("ignore:The class `OpenAIDecisions` is in beta")
def test_decisions_are_made(service: str) -> None:
    decisions = OpenAIDecisions(model="entailment", **address(service))
    answer = decisions.invoke(
        {
            "input": "The film was good.",
            "questions": {
                "film": Predicate(instructions="It is about a film."),
                "writer": Choice(instructions="The writer is", choices={"happy": None, "sad": "not happy"}),
            },
        }
    )

    assert 0 < answer.predicates["film"].probability < 1
    assert answer.choices["writer"].choice in ("happy", "sad")


def test_a_conversation_that_is_too_long_raises_what_programs_shorten_it_on(service: str) -> None:
    with pytest.raises(ContextOverflowError):
        ChatOpenAI(model="stories", **address(service)).invoke("Who is Dan? " * 2000)
