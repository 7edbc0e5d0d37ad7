from __future__ import annotations

import math
import unicodedata
from typing import Any, Literal

import numpy as np
import pytest

from model.package import PackageTokenizer
from model.package.tokenizer import Encoding
from service.decisions import place_of
from service.schemas.decide import Option
from tests.service.api.conftest import Client, OpenClient, post
from tests.service.api.protocols.openai.conftest import refused

TEXT = "The film was good and the actors were great."
OPINION = {
    "type": "choice",
    "instructions": "The writer is",
    "choices": [{"value": "positive"}, {"value": "negative", "description": "not so good"}],
}
STATEMENT = {"type": "predicate", "name": "film", "instructions": "It is about a film."}
LEVELS = {
    "type": "score",
    "instructions": "It is",
    "levels": [{"label": "good"}, {"label": "so good"}, {"label": "great"}],
}


async def ask(client: Client, model: str, *questions: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    body = {"model": model, "input": TEXT, "questions": questions, **fields}
    answers: list[dict[str, Any]] = (await post(client, "/v1/decisions", **body))["answers"]
    return answers


@pytest.mark.parametrize("model", ["entailment", "ranker", "stories"])
async def test_questions_of_every_kind_are_answered_with_probabilities(open_client: OpenClient, model: str) -> None:
    async with open_client(model) as client:
        statement, opinion, level = await ask(client, model, STATEMENT, OPINION, LEVELS)
        (alone,) = await ask(client, model, OPINION)

    assert statement["type"] == "predicate" and statement["name"] == "film" and 0 < statement["probability"] < 1
    assert opinion["name"] is None and [each["value"] for each in opinion["probabilities"]] == ["positive", "negative"]
    probabilities = [each["probability"] for each in opinion["probabilities"]]
    assert sum(probabilities) == pytest.approx(1)
    assert opinion["choice"] == ["positive", "negative"][int(np.argmax(probabilities))]
    assert [(each["value"], each["label"]) for each in level["probabilities"]] == [
        (0, "good"),
        (1, "so good"),
        (2, "great"),
    ]
    assert level["score"] == pytest.approx(sum(each["value"] * each["probability"] for each in level["probabilities"]))
    assert [each["probability"] for each in alone["probabilities"]] == pytest.approx(probabilities, abs=1e-5)


async def test_entailment_is_that_of_zero_shot_labels(open_client: OpenClient) -> None:
    async with open_client("entailment") as client:
        statement, opinion = await ask(client, "entailment", STATEMENT, OPINION)
        alone = await post(client, "/classify", input=TEXT, labels=["It is about a film."], hypothesis_template="{}")
        labels = ["positive", "not so good"]
        among = await post(client, "/classify", input=TEXT, labels=labels, hypothesis_template="The writer is {}")

    assert statement["probability"] == pytest.approx(alone["results"][0]["labels"][0]["score"], abs=1e-6)
    scores = {label["label"]: label["score"] for label in among["results"][0]["labels"]}
    found = [each["probability"] for each in opinion["probabilities"]]
    assert found == pytest.approx([scores[label] for label in labels], abs=1e-6)


async def test_relevance_is_that_of_reranking(open_client: OpenClient) -> None:
    async with open_client("ranker") as client:
        (statement,) = await ask(client, "ranker", STATEMENT)
        ranked = await post(client, "/rerank", query="It is about a film.", documents=[TEXT], activation="sigmoid")

    assert statement["probability"] == pytest.approx(ranked["results"][0]["relevance_score"], abs=1e-6)


async def test_likelihood_is_that_of_the_answers_tokens(open_client: OpenClient) -> None:
    question = {"type": "choice", "instructions": "How?", "choices": [{"value": "good"}, {"value": "a red ball"}]}
    async with open_client("stories") as client:
        (answer,) = await ask(client, "stories", question)
        context = f"{TEXT}\n\nHow?\nAnswer:"
        likelihoods = []
        for value in ("good", "a red ball"):
            tokens = []
            for prompt in (context, f"{context} {value}"):
                body = {"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 1, "min_tokens": 1}
                tokens.append((await post(client, "/generate", **body))["choices"][0]["logprobs"][:-1])
            before = len(tokens[0])
            assert [token["id"] for token in tokens[1][:before]] == [token["id"] for token in tokens[0]]
            likelihoods.append(sum(token["logprob"] for token in tokens[1][before:]))

    weights = np.exp(np.array(likelihoods) - max(likelihoods))
    found = [each["probability"] for each in answer["probabilities"]]
    assert found == pytest.approx((weights / weights.sum()).tolist(), rel=1e-3)


async def test_a_classifier_answers_what_its_labels_say_and_declines_the_rest(open_client: OpenClient) -> None:
    statement = {"type": "predicate", "name": "Positive", "instructions": "The writer likes the film."}
    async with open_client("sentiment") as client:
        opinion, true, other = await ask(client, "sentiment", OPINION, statement, LEVELS)
        labels = (await post(client, "/classify", input=TEXT))["results"][0]["labels"]
        error = await refused(client, "/v1/decisions", model="sentiment", input=TEXT, questions=[LEVELS])

    scores = {label["label"]: label["score"] for label in labels}
    assert {each["value"]: each["probability"] for each in opinion["probabilities"]} == pytest.approx(scores)
    assert opinion["choice"] == labels[0]["label"]
    assert true["probability"] == pytest.approx(scores["positive"])
    assert other == {"type": "refusal", "name": None}
    assert "labels of its own: negative, positive" in error["message"] and error["param"] == "questions"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_label_is_found_in_whatever_case_and_code_of_accents(form: Literal["NFC", "NFD"]) -> None:
    option = Option(text="is it damaged?", names=[unicodedata.normalize(form, " BESCHÄDIGT")])

    assert place_of(option, ["ganz", "beschädigt"]) == place_of(option, ["ganz", "bescha\u0308digt"]) == 1


async def test_without_a_model_the_first_that_can_answer_all_does(open_client: OpenClient) -> None:
    async with open_client("embed", "sentiment", "entailment") as client:
        of_labels = await post(client, "/v1/decisions", input=TEXT, questions=[OPINION])
        of_others = await post(client, "/v1/decisions", input=TEXT, questions=[OPINION, LEVELS])
        cards = (await client.get("/v1/models")).json()["data"]

    assert (of_labels["model"], of_others["model"]) == ("sentiment", "entailment")
    assert [card["decisions"] for card in cards] == [None, "labels", "entailment"]


async def test_confidence_is_how_far_probabilities_are_from_even(open_client: OpenClient) -> None:
    async with open_client("entailment") as client:
        (level,) = await ask(client, "entailment", LEVELS)

    probabilities = [each["probability"] for each in level["probabilities"]]
    entropy = -sum(each * math.log(each) for each in probabilities)
    assert level["confidence"] == pytest.approx(1 - entropy / math.log(3))


async def test_conversations_and_json_are_read_as_text(open_client: OpenClient) -> None:
    messages = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Was the film"}, {"type": "input_text", "text": "good?"}],
        },
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "good"},
    ]
    text = "user: Was the film\ngood?\nfunction_call: look({})\nfunction_call_output: good"
    json_ = [{"role": "user", "content": [{"type": "input_json", "data": {"film": "good"}}]}]
    async with open_client("entailment") as client:
        answers = [
            await ask(client, "entailment", STATEMENT, input=given)
            for given in (messages, text, json_, '{"film": "good"}')
        ]

    assert answers[0] == answers[1] and answers[2] == answers[3]


@pytest.mark.parametrize(
    ("questions", "what"),
    [
        ([], "at least 1 item"),
        ([{"type": "essay", "instructions": "Why?"}], "expected tags"),
        ([{"type": "predicate", "instructions": " "}], "instructions are empty"),
        ([{**OPINION, "choices": [{"value": "a"}]}], "at least 2 items"),
        ([{**OPINION, "choices": [{"value": "a"}, {"value": "a"}]}], "each choice must be there once"),
        ([{**LEVELS, "levels": [{"label": "a"}] * 11}], "at most 10 items"),
    ],
)
async def test_wrong_questions_are_refused(open_client: OpenClient, questions: list[Any], what: str) -> None:
    async with open_client("entailment") as client:
        error = await refused(client, "/v1/decisions", input=TEXT, questions=questions)
        image = [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]
        of_image = await refused(client, "/v1/decisions", input=image, questions=[STATEMENT])

    assert what in error["message"] and error["param"] == "questions"
    assert of_image["param"] == "input"


async def test_texts_and_booleans_are_different_choices(open_client: OpenClient) -> None:
    question = {**OPINION, "choices": [{"value": True}, {"value": "true"}, {"value": False}]}
    async with open_client("entailment") as client:
        (answer,) = await ask(client, "entailment", question)

    assert [each["value"] for each in answer["probabilities"]] == [True, "true", False]


async def test_more_tokens_than_one_answer_may_score_are_refused_by_the_clients_field(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.tasks.generate.MAX_LOGPROBS", 10)
    async with open_client("stories") as client:
        response = await client.post("/v1/decisions", json={"input": "a", "questions": [STATEMENT]})

    error = response.json()["error"]
    assert response.status_code == 413 and error["param"] == "questions"
    assert "the limit is 10 " in error["message"] and "logprobs" not in error["message"]


@pytest.mark.parametrize("model", ["entailment", "stories"])
async def test_long_texts_and_too_many_answers_are_refused(open_client: OpenClient, model: str) -> None:
    many = [{**OPINION, "choices": [{"value": f"{index}"} for index in range(255)]}] * 5
    async with open_client(model) as client:
        error = await refused(client, "/v1/decisions", input="good " * 300, questions=[STATEMENT])
        response = await client.post("/v1/decisions", json={"input": "a", "questions": many})

    assert "the limit is" in error["message"] and error["param"] == "input"
    assert response.status_code == 413 and response.json()["error"]["param"] == "questions"


async def test_a_question_that_is_too_long_is_told_as_one(open_client: OpenClient) -> None:
    long = {**OPINION, "instructions": "why " * 4000}
    async with open_client("entailment") as client:
        error = await refused(client, "/v1/decisions", input=TEXT, questions=[long])

    assert error["param"] == "questions" and "characters" in error["message"]


async def test_an_option_without_tokens_is_refused(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = PackageTokenizer.encode

    def without_zeros(tokenizer: PackageTokenizer, text: str, *rest: Any, **how: Any) -> Encoding:
        return encode(tokenizer, text.rstrip(" \u200b"), *rest, **how)  # as some tokenizers drop characters

    monkeypatch.setattr(PackageTokenizer, "encode", without_zeros)
    async with open_client("stories") as client:
        error = await refused(
            client,
            "/v1/decisions",
            input=TEXT,
            questions=[{**OPINION, "choices": [{"value": "a"}, {"value": "\u200b"}]}],
        )

    assert error["param"] == "questions" and "has no tokens" in error["message"]
