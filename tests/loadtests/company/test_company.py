"""The checker finds answers that depend on their company, and none where they do not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from loadtests.company.__main__ import compare
from loadtests.company.answers import Scores, Text, Vector
from loadtests.company.asking import Found, table
from service.api.app import create_app
from service.models_file import ModelSettings
from service.settings import Limits, Settings
from service.tasks.loading import load_task
from tests.conftest import MakePackage

ASKED: dict[str, Any] = {"model": None, "target": "sv", "count": 12, "most_words": 8, "rounds": 2, "seed": 0}


async def checked(app: Any, protocol: str, **options: Any) -> list[Found]:
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
        return await compare(client, protocol, **{**ASKED, **options})


def server(answer: Callable[[dict[str, Any]], Any], path: str) -> Starlette:
    async def answered(request: Request) -> Response:
        body = await request.json()
        if body.get("stream"):
            events = [{"choices": [{"text": piece}]} for piece in answer(body)["choices"][0]["text"]]
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            return StreamingResponse(iter([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")
        return JSONResponse(answer(body))

    return Starlette(routes=[Route(path, answered, methods=["POST"])])


async def test_vectors_that_depend_on_how_many_are_asked_for_are_caught() -> None:
    def embed(body: dict[str, Any]) -> Any:
        texts = body["inputs"]
        return [[float(len(text)), 1.0, 0.01 * (len(texts) - 1)] for text in texts]

    (found,) = await checked(server(embed, "/embed"), "tei")

    assert found.again == 0 and found.together == 24
    assert 0 < len(found.moves) < 24  # those that came in a request of their own did not move
    assert found.farthest is not None and found.farthest.said.startswith("cosine 1 − ")


async def test_streams_that_end_otherwise_are_caught_and_told_where() -> None:
    def complete(body: dict[str, Any]) -> Any:
        end = "!" if body.get("stream") else "."
        return {"choices": [{"text": f"abc{end}"} for _ in body["prompt"]]}

    (found,) = await checked(server(complete, "/v1/completions"), "openai", rounds=4)

    assert found.moves and {move.said for move in found.moves} == {"texts part at character 3 of 4"}


async def test_answers_that_are_never_the_same_are_told_apart_from_company() -> None:
    counts = iter(range(1000))

    def predict(body: dict[str, Any]) -> Any:
        return [
            [{"label": "a", "score": 0.6}, {"label": "b", "score": 0.3 + next(counts) / 1e6}] for _ in body["inputs"]
        ]

    (found,) = await checked(server(predict, "/predict"), "tei")

    assert found.again == found.inputs == 12 and len(found.moves) == 24
    assert found.farthest is not None and found.farthest.said.startswith("a score by 4")


@pytest.mark.parametrize("lost", ["refused", "missing"])
async def test_what_is_refused_or_lost_in_company_alone_is_no_kind_that_is_not_there(lost: str) -> None:
    def embed(body: dict[str, Any]) -> Any:
        texts = body["inputs"]
        if len(texts) > 1 and lost == "refused":
            raise HTTPException(413)
        return [[float(len(text))] for text in texts[:1]]

    with pytest.raises(httpx2.HTTPError, match=r"413|inputs have 1 answers"):
        await checked(server(embed, "/embed"), "tei")


def test_another_best_label_is_farther_than_any_score() -> None:
    alone, near, far = Scores({"a": 0.6, "b": 0.4}), Scores({"a": 0.51, "b": 0.49}), Scores({"a": 0.4, "b": 0.6})
    moves = [move for move in (near.moved(alone), far.moved(alone)) if move is not None]

    assert moves[1].distance > moves[0].distance and moves[1].said == "label 'a' became 'b'"
    assert alone.moved(Scores({"b": 0.4, "a": 0.6})) is None


def test_vectors_and_texts_that_are_the_same_have_not_moved() -> None:
    assert Vector([1.0, 2.0]).moved(Vector([1.0, 2.0])) is None
    assert Text("a").moved(Text("a")) is None
    move = Vector([1.0, 0.0]).moved(Vector([0.0, 1.0]))
    assert move is not None and move.said == "cosine 1 − 1"


@pytest.fixture
async def ours(make_package: MakePackage) -> AsyncIterator[Any]:
    """The API over tiny models in int8."""
    settings = Settings(limits=Limits())
    names = ("sentiment", "embed", "stories", "translate")
    folders = [make_package(name, "int8").folder for name in names]
    tasks = [load_task(ModelSettings(package=folder, threads=1), settings.limits) for folder in folders]
    yield create_app(tasks, settings)
    for task in tasks:
        await task.close()


@pytest.mark.parametrize(("protocol", "kinds"), [("native", 4), ("openai", 2), ("tei", 3), ("libretranslate", 1)])
async def test_no_label_and_no_text_of_an_int8_package_moves(ours: Any, protocol: str, kinds: int) -> None:
    found = await checked(ours, protocol, rounds=1)

    assert len(found) == kinds and all(each.together == 12 for each in found)  # no ranker is served
    for each in found:
        if each.name == "vectors":  # the sum over a text's tokens is rounded otherwise in a batch
            assert all(move.distance < 1e-12 for move in each.moves)
        else:
            assert not each.moves, table([each])


def test_a_vector_of_another_length_is_as_far_as_can_be() -> None:
    move = Vector([1.0, 2.0, 3.0]).moved(Vector([1.0, 2.0]))

    assert move is not None and move.distance == 1
