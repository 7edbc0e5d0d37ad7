"""OpenAI's client against the running service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import numpy as np
import openai
import pytest
from pydantic import BaseModel, Field

from tests.conftest import TEXTS
from tests.integration.service.clients.posting import post

pytestmark = pytest.mark.integration

PROMPT: dict[str, Any] = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 20, "seed": 3}
CONVERSATION: dict[str, Any] = {
    "model": "stories",
    "messages": [{"role": "user", "content": "Who is Dan?"}],
    "max_completion_tokens": 20,
    "seed": 3,
}


@pytest.fixture
def client(service: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
async def waiting(service: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{service}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_embeddings_are_the_native_vectors(service: str, client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="embed", input=TEXTS)  # in base64, unless it is told otherwise
    numbers = client.embeddings.create(model="embed", input=TEXTS, encoding_format="float")

    native = post(f"{service}/embed", input=TEXTS)
    assert [each.embedding for each in numbers.data] == native["embeddings"]
    np.testing.assert_array_equal([each.embedding for each in answer.data], native["embeddings"])
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == native["usage"]["prompt_tokens"]


def test_a_completion_streams(client: openai.OpenAI) -> None:
    whole = client.completions.create(**PROMPT, logprobs=2)
    with client.completions.create(**PROMPT, logprobs=2, stream=True, stream_options={"include_usage": True}) as stream:
        *chunks, last = stream

    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.choices == [] and last.usage == whole.usage and last.id == chunks[0].id
    assert whole.choices[0].logprobs and len(whole.choices[0].logprobs.top_logprobs or []) >= 20


def test_several_prompts_have_their_choices_in_order(client: openai.OpenAI) -> None:
    several = client.completions.create(**{**PROMPT, "prompt": ["Once", "The dog"]}, n=2, best_of=3, temperature=1.0)

    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]


def test_a_conversation_streams(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**CONVERSATION, logprobs=True, top_logprobs=2)
    with client.chat.completions.create(**CONVERSATION, stream=True, stream_options={"include_usage": True}) as stream:
        *chunks, last = stream

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == whole.choices[0].message.role == "assistant"
    assert last.usage == whole.usage
    logprobs = whole.choices[0].logprobs
    assert logprobs and logprobs.content and len(logprobs.content[0].top_logprobs) == 2


def test_a_response_streams(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "stories", "input": "Who is Dan?", "max_output_tokens": 20}
    whole = client.responses.create(**asked, temperature=0)
    *pieces, last = client.responses.create(**asked, temperature=0, stream=True)

    deltas = [event.delta for event in pieces if event.type == "response.output_text.delta"]
    assert last.type == "response.incomplete"  # it is cut
    assert "".join(deltas) == whole.output_text == last.response.output_text != ""
    assert whole.status == last.response.status and whole.usage == last.response.usage
    items: list[Any] = [{"role": "user", "content": "Who is Dan?"}, *whole.output, {"role": "user", "content": "?"}]
    again = client.responses.create(**{**asked, "input": items}, temperature=0)
    assert again.output_text


def test_a_response_is_what_a_class_describes(client: openai.OpenAI) -> None:
    class Person(BaseModel):
        name: Literal["Dan", "Tom"]
        age: int = Field(ge=0, le=99)

    asked: dict[str, Any] = {"model": "stories", "input": "Who is Dan?", "max_output_tokens": 60, "temperature": 0}
    answer = client.responses.parse(**asked, text_format=Person)
    with client.responses.stream(**asked, text_format=Person) as stream:
        last = stream.get_final_response()

    assert answer.output_parsed is not None and answer.output_parsed.name in ("Dan", "Tom")
    assert last.output_parsed == answer.output_parsed


async def test_the_client_that_does_not_wait_streams_too(waiting: openai.AsyncOpenAI) -> None:
    whole = await waiting.chat.completions.create(**CONVERSATION)
    text = ""
    async with await waiting.chat.completions.create(**CONVERSATION, stream=True) as stream:
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""

    assert text == whole.choices[0].message.content
    vectors = await waiting.embeddings.create(model="embed", input="a")
    assert len(vectors.data) == 1


def test_decisions_are_typed(client: openai.OpenAI) -> None:
    decision = client.decisions.create(
        model="entailment",
        input="The film was good.",
        questions=[
            {"type": "predicate", "name": "film", "instructions": "It is about a film."},
            {"type": "choice", "instructions": "The writer is", "choices": [{"value": "happy"}, {"value": False}]},
            {"type": "score", "instructions": "It is", "levels": [{"label": "bad"}, {"label": "good"}]},
        ],
    )

    film, writer, how = decision.answers
    assert film.type == "predicate" and film.name == "film" and 0 < film.probability < 1
    assert writer.type == "choice" and writer.choice in ("happy", False) and writer.name is None
    assert how.type == "score" and 0 < how.score < 1 and how.probabilities[1].label == "good"
    assert decision.usage.input_tokens == decision.usage.total_tokens > 0


def test_a_question_that_a_classifier_cannot_answer_is_declined(client: openai.OpenAI) -> None:
    decision = client.decisions.create(
        model="sentiment",
        input="The film was good.",
        questions=[
            {"type": "choice", "instructions": "It is", "choices": [{"value": "positive"}, {"value": "negative"}]},
            {"type": "choice", "instructions": "It is", "choices": [{"value": "red"}, {"value": "blue"}]},
        ],
    )

    assert [answer.type for answer in decision.answers] == ["choice", "refusal"]


def test_models_are_listed_and_told_of(client: openai.OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}

    assert {"embed", "stories"} <= set(models)
    assert client.models.retrieve("stories") == models["stories"]


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(**{**PROMPT, "prompt": "x " * 300})
    assert long.value.param == "prompt" and "the limit is 127" in long.value.message
    with pytest.raises(openai.BadRequestError) as tools:
        client.chat.completions.create(
            **CONVERSATION, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]
        )
    assert tools.value.param == "tools"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="nobody", input="a")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


def test_a_models_own_address_answers_too(service: str, client: openai.OpenAI) -> None:
    with openai.OpenAI(base_url=f"{service}/models/stories/v1", api_key="any", max_retries=0) as own:
        alone, among = (each.completions.create(**PROMPT) for each in (own, client))
        assert [model.id for model in own.models.list()] == ["stories"]

    assert alone.choices == among.choices and alone.usage == among.usage
