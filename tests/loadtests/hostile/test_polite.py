from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from loadtests.hostile.polite import (
    BrokenAnswerError,
    Question,
    Sample,
    User,
    ask,
    content_of,
    right_answers,
    use,
    users,
)
from loadtests.hostile.wire import Connection
from tests.loadtests.hostile.conftest import StandIn, event_answer, json_answer

QUESTION = Question("sentiment", "classify", {"input": "good"})
USER = User("classify", (QUESTION,))
ANSWER = {"results": [{"labels": [{"label": "positive", "score": 0.1}]}]}


def test_eight_users_ask_for_all_tasks_whole_and_streamed() -> None:
    asked = users()

    assert len(asked) == 8
    assert {question.model for user in asked for question in user.questions} == {
        *("sentiment", "spam", "topics", "fashion", "embed", "stories", "translate")
    }
    streams = {user.questions[0].route for user in asked if user.questions[0].is_stream}
    assert streams == {"generate", "translate"}
    assert all("seed" in question.body for user in asked if "sampled" in user.name for question in user.questions)


def test_a_question_goes_both_ways() -> None:
    direct, gateway = QUESTION.ways

    assert (direct.path, gateway.path) == ("/models/sentiment/classify", "/classify")
    assert json.loads(gateway.body) == {"model": "sentiment", "input": "good"}


def test_the_last_bit_of_a_score_counts() -> None:
    one, other = (
        content_of(f'{{"score": {score}}}'.encode(), is_stream=False) for score in ("0.1", "0.10000000000000002")
    )

    assert one != other


def stream(*messages: dict[str, Any], end: str = "data: [DONE]\n\n") -> bytes:
    return "".join(f"data: {json.dumps(message)}\n\n" for message in messages).encode() + end.encode()


def test_it_does_not_matter_how_a_stream_is_cut_into_pieces() -> None:
    last = {"index": 0, "text": "b", "finish_reason": "length"}
    pieces = stream({"index": 0, "text": "a"}, last, {"usage": {"completion_tokens": 2}})
    whole = stream({**last, "text": "ab"}, {"usage": {"completion_tokens": 2}})
    other = stream({**last, "text": "ac"}, {"usage": {"completion_tokens": 2}})

    assert content_of(b": keep-alive\n\n" + pieces, is_stream=True) == content_of(whole, is_stream=True)
    assert content_of(whole, is_stream=True) != content_of(other, is_stream=True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (stream({"index": 0, "text": "a"}, end=""), "broken off"),
        (stream({"error": {"code": "internal_error", "message": ""}}), "internal_error"),
        (b"data: {\n\n", "not JSON"),
    ],
)
def test_a_stream_that_fails_or_breaks_off_is_an_error(body: bytes, reason: str) -> None:
    with pytest.raises(BrokenAnswerError, match=reason):
        content_of(body, is_stream=True)


async def test_answers_are_compared_with_those_given_alone(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: json_answer(ANSWER)
    right = await right_answers([USER], stand_in.address, None)
    found = []
    with Connection(stand_in.address) as connection:
        for answer in (json_answer(ANSWER), json_answer({"results": []}), json_answer(ANSWER, status=503)):
            stand_in.answer = lambda _line, _body, answer=answer: answer  # type: ignore[misc]  # bound here
            sample = await ask(USER, QUESTION, QUESTION.ways[0], connection, right)
            found.append((sample.is_wrong, sample.error))

    assert found == [(False, None), (True, None), (False, "503")]


async def test_a_service_that_answers_differently_every_time_has_no_right_answer(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: json_answer(random.random())

    with pytest.raises(RuntimeError, match="two answers"):
        await right_answers([USER], stand_in.address, None)


async def test_what_failed_is_asked_again_after_the_pause(stand_in: StandIn) -> None:
    answers = iter([json_answer({}, status=500), *[json_answer(ANSWER)] * 1000])
    stand_in.answer = lambda _line, _body: next(answers)
    samples: list[Sample] = []
    right = {QUESTION: content_of(json.dumps(ANSWER).encode(), is_stream=False)}
    await use(USER, stand_in.address, None, right, time.monotonic() + 1, samples)

    assert [sample.error for sample in samples[:2]] == ["500", None]
    assert [sample.follows_error for sample in samples[:2]] == [False, True]
    assert stand_in.seen[0].head == stand_in.seen[1].head


async def test_a_reset_connection_is_an_error_of_the_user(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: event_answer("{}")[:-30]
    stand_in.hangs_up = True

    sample = await ask(USER, QUESTION, QUESTION.ways[0], Connection(stand_in.address), {})

    assert sample.error in {"IncompleteReadError", "ConnectionResetError"}
