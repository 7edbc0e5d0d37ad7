from __future__ import annotations

import json
import math

import pytest

from service import schemas
from service.api.answers import FEW, _pieces, json_answer
from service.api.protocols.nulls import WithNulls
from service.schemas import (
    Choice,
    Classification,
    ClassifyResponse,
    EmbedResponse,
    EmbedSparseResponse,
    GenerateResponse,
    Label,
    SparseVector,
    Token,
    TokenizeResponse,
    TokenLogprob,
    TopLogprob,
    TranslateResponse,
    Usage,
)

USAGE = Usage(prompt_tokens=3)
LOGPROBS = [TokenLogprob(1, "é", []), TokenLogprob(2, "b", [TopLogprob(id=3, text='"', logprob=-0.25)], -0.5)]


@pytest.mark.parametrize(
    "answer",
    [
        ClassifyResponse(
            model="m", results=[Classification(labels=[Label(label="good", score=1e-05)])] * 3, usage=USAGE
        ),
        EmbedResponse(model="m", embeddings=[[0.1, -2.0] * FEW], usage=USAGE),
        GenerateResponse(
            model="m",
            choices=[Choice(index=0, text="ä\n", finish_reason="stop", logprobs=LOGPROBS)],
            usage=USAGE,
        ),
        GenerateResponse(model="m", choices=[], usage=USAGE),
        EmbedSparseResponse(
            model="m",
            embeddings=[SparseVector(indices=[*range(FEW + 1)], values=[0.5] * (FEW + 1), tokens=["é"] * (FEW + 1))],
            usage=USAGE,
        ),
        TranslateResponse(model="m", translations=["a", "b"], alternatives=[["c"], []], usage=USAGE),
        TranslateResponse(model="m", translations=["a"], usage=USAGE),
        GenerateResponse(
            model="m", choices=[Choice(index=0, text="ä", finish_reason="stop", logprobs=LOGPROBS * FEW)], usage=USAGE
        ),
        TokenizeResponse(model="m", results=[[Token(1, "a", 0, 1, special=False)] * (2 * FEW + 1), []]),
    ],
    ids=lambda answer: type(answer).__name__,
)
async def test_an_answer_in_pieces_is_the_answer(answer: schemas.Response) -> None:
    response = await json_answer(answer)

    assert json.loads(bytes(response.body)) == answer.model_dump(mode="json", exclude_none=True)
    assert response.media_type == "application/json"


def test_a_long_list_of_numbers_is_written_many_at_a_time() -> None:
    vector = SparseVector(indices=[*range(10 * FEW)], values=[0.5] * 10 * FEW)
    answer = EmbedSparseResponse(model="m", embeddings=[vector], usage=USAGE)

    assert sum(1 for _ in _pieces(answer)) < 100


class Within(schemas.Response):
    lists: list[list[int]]


class Outside(WithNulls):
    may_be_null = ("nothing", "never_said")

    parts: list[Within]
    nothing: int | None
    never_said: int | None = None


async def test_a_long_list_is_written_in_pieces_however_deep_it_is() -> None:
    answer = Outside(parts=[Within(lists=[[5] * FEW] * 20)] * 2, nothing=None)
    pieces = list(_pieces(answer))

    assert max(map(len, pieces)) < 4 * FEW
    assert json.loads(b"".join(pieces)) == {"parts": [{"lists": [[5] * FEW] * 20}] * 2, "nothing": None}


async def test_what_is_no_number_in_json_is_null() -> None:
    answer = EmbedResponse(model="m", embeddings=[[math.nan, math.inf] * FEW, [-math.inf]], usage=USAGE)
    response = await json_answer(answer)

    assert json.loads(bytes(response.body))["embeddings"] == [[None, None] * FEW, [None]]
